// A Program with its costs, flattened into what the engine touches at every event: plain arrays,
// times in seconds, no strings. Private to this folder.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/program/program.h"
#include "autodist/protocol/job.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/uplinks.h"

namespace autodist::sim {

enum class FlatKind : std::uint8_t {
  kCompute,     // id: segment
  kGate,        // id: variable
  kFetch,       // id: variable
  kContribute,  // id: variable
  kRelease,     // id: variable
  kUpdate,      // id: variable
  kReduce,      // id: collective
  kNorm,        // id: clip; whoever updates waits for it
  kAgree,       // this rank says whether its gradients are finite; whoever updates waits for all
  kBarrier,     // until every variable has this step's version
  kSend,        // id: transfer between stages
  kReceive,     // id: transfer between stages
  kNothing,     // never in a stream
};
struct FlatInstruction {
  FlatKind kind = FlatKind::kCompute;
  std::uint32_t id = 0;
};

// Ops between two other instructions, and what the host does besides (encoding, copies).
struct Segment {
  std::vector<ir::OpId> ops;
  std::vector<double> seconds;  // by device of the cost model
  std::vector<double> extra;    // by device of the cost model
};

// What a slice costs; who does what with it: protocol::Job.
struct SliceTable {
  double needed = 0;
  std::int64_t contribution = 0;  // bytes
  std::int64_t result = 0;        // bytes
  std::int64_t asked = 0;         // bytes
  std::int64_t fetched = 0;       // bytes
  double encoded = 0;             // bytes of each contribution, by its sender
  double merges = 1;              // pieces of work that the contributions of a step make
  double sum_seconds = 0;         // of one, where all of its contributions meet
  double sum_one = 0;             // of one contribution, where some of them meet on the way
  double update_seconds = 0;      // 0 where every rank updates
  bool sums_all = true;           // else only rows that the step touched
};

struct VariableTable {
  std::uint32_t collective = protocol::kNone;
  bool fetched = false;  // its rows are, or the results that ranks ask for
  double needed = 0;
  double install_seconds = 0;  // of one version, copy or update, and back to the device
  double update_seconds = 0;   // where no slice carries it
  double rows_seconds = 0;     // putting fetched rows in place
  std::int64_t gradient = 0;   // bytes, as the step makes it; 0: it is not trained
  std::int64_t staged = 0;     // bytes that leave the device for it
  std::int64_t bytes = 0;      // of the variable
};

struct CollectiveTable {
  std::vector<std::uint32_t> variables;
  // Of what is reduced: gradients, or first factors and then, in a second round, the others.
  std::int64_t bytes = 0;
  std::int64_t second_bytes = 0;  // 0: one round
  double copy_seconds = 0;        // into one buffer, and out again; factoring included
  double wire_seconds = 0;        // alone on the links
  double cpu_seconds = 0;         // of a member's host
  const std::vector<program::Rank>* members = nullptr;
};

// A value that a stage hands to others of its replica.
struct TransferTable {
  std::int64_t bytes = 0;
  std::uint32_t from = 0;  // stage
  std::vector<std::uint32_t> to;
};

struct RoleTable {
  std::vector<FlatInstruction> compute;
  std::vector<FlatInstruction> collective;
};

struct NodeTable {
  double bytes_per_s = 0;  // payload that its NIC carries, each way
  double latency = 0;
  double intra_bytes_per_s = 0;
  std::uint32_t cores = 0;
  std::vector<std::uint32_t> ranks;  // ascending
};

struct JobTables {
  JobTables(const program::Program& program, const cluster::Cluster& cluster,
            const CostModel& costs);

  protocol::Job job;
  std::vector<Segment> segments;
  std::vector<RoleTable> roles;
  std::vector<std::uint32_t> role_of_rank;
  std::vector<std::uint32_t> node_of_rank;
  std::vector<NodeTable> nodes;
  std::vector<SliceTable> slices;
  std::vector<VariableTable> variables;
  std::vector<CollectiveTable> collectives;
  std::vector<TransferTable> transfers;
  // Times that a step goes through the compute stream: once per micro-batch, or once where the
  // stream has all of them (placed graphs).
  std::uint32_t passes = 1;
  bool mixed = false;  // slices and collectives share links

  // Seconds that `rank` needs to add up what meets there.
  [[nodiscard]] double sum_seconds(std::uint32_t slice, std::uint32_t rank) const {
    const protocol::Job::Slice& rules = job.slices[slice];
    if (rules.route.is_direct()) return slices[slice].sum_seconds;
    return slices[slice].sum_one * job.stop(rules, program::Rank(rank)).combines;
  }

  Uplinks uplinks;

 private:
  void add_nodes(const program::Program& program, const cluster::Cluster& cluster,
                 const CostModel& costs);
  void add_slices(const program::Program& program, const CostModel& costs);
  void add_variables(const program::Program& program, const CostModel& costs);
  void add_collectives(const program::Program& program, const CostModel& costs);
  [[nodiscard]] CollectiveLinks links_between(const std::vector<program::Rank>& members) const;
  void add_transfers(const program::Program& program, const CostModel& costs);
  void add_roles(const program::Program& program, const CostModel& costs);
  std::vector<FlatInstruction> flatten(const program::Program& program,
                                       const program::Stream& stream, const CostModel& costs);
};

}  // namespace autodist::sim
