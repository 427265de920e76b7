// A Program with its costs, flattened into what the engine touches at every event: plain arrays,
// times in seconds, no strings. Private to this folder.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/program.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/slice_ways.h"

namespace autodist::sim {

enum class StepKind : std::uint8_t {
  kCompute,  // id: segment
  kGate,     // id: variable, as all below but the last five
  kFetch,
  kContribute,
  kRelease,
  kUpdate,
  kReduce,   // id: collective
  kNorm,     // whoever updates waits for it
  kBarrier,  // until every variable has this step's version
  kSend,     // id: transfer between stages, as below
  kReceive,
  kNothing,  // never in a stream
};
struct Instruction {
  StepKind kind = StepKind::kCompute;
  std::uint32_t id = 0;
};

// Ops between two other instructions, and what the compute thread does besides (encoding).
struct Segment {
  std::vector<ir::OpId> ops;
  std::vector<double> seconds;  // by device of the cost model
  double extra = 0;             // on every device
};

struct SliceTable {
  std::uint32_t owner = 0;
  double needed = 0;
  std::int64_t contribution = 0;  // bytes, as the three below
  std::int64_t result = 0;
  std::int64_t asked = 0;
  std::int64_t fetched = 0;
  double sum_seconds = 0;     // where all of them meet
  double sum_one = 0;         // of one contribution, where some of them meet on the way
  double update_seconds = 0;  // 0 where every rank updates
  std::uint32_t ring = 1;     // steps that may be open at once: staleness + 1
  bool synchronous = true;
  bool at_owner = true;
  ir::RowTransfer rows = ir::RowTransfer::kNone;
  bool by_all = false;  // every member makes the result for itself
  bool relays = false;  // contributions meet on the way, too
  TurnedWay way;
  std::vector<std::uint32_t> variables;  // without duplicates
  std::uint32_t member_count = 0;
  const std::vector<ir::Rank>* members = nullptr;
  std::vector<std::uint32_t> clip_norms;  // one entry per part
  std::vector<std::uint32_t> lamb_norms;
  std::uint32_t fused = kNone;  // number among the slices of several variables
};

struct VariableTable {
  std::vector<std::uint32_t> slices;
  std::uint32_t collective = kNone;
  std::uint32_t clip = kNone;
  std::uint32_t staleness = 0;
  bool trained = false;
  bool fetched = false;           // its rows are
  bool installs_by_norm = false;  // updated at every rank, from clipped gradients
  double needed = 0;
  double install_seconds = 0;  // of one version, copy or update, and back to the device
  double update_seconds = 0;   // where no slice carries it
  double rows_seconds = 0;     // putting fetched rows in place
  std::int64_t staged = 0;     // bytes of the gradient on the device
  std::uint32_t whole_norm = kNone;
};

struct CollectiveTable {
  std::vector<std::uint32_t> variables;
  // Of what is reduced: gradients, or first factors and then, in a second round, the others.
  std::int64_t bytes = 0;
  std::int64_t second_bytes = 0;  // 0: one round
  double copy_seconds = 0;        // into one buffer, and out again; factoring included
  double wire_seconds = 0;        // alone on the links
  double cpu_seconds = 0;         // of a member's host
  const std::vector<ir::Rank>* members = nullptr;
};

// A value that a stage hands to others of its replica.
struct TransferTable {
  std::int64_t bytes = 0;
  std::uint32_t from = 0;  // stage
  std::vector<std::uint32_t> to;
};

struct RoleTable {
  std::vector<Instruction> compute;
  std::vector<Instruction> collective;
};

struct NodeTable {
  double bytes_per_s = 0;  // payload that its NIC carries, each way
  double latency = 0;
  double intra_bytes_per_s = 0;
  std::uint32_t cores = 0;
  std::vector<std::uint32_t> ranks;  // ascending
};

struct JobTables {
  JobTables(const ir::Program& program, const cluster::Cluster& cluster, const CostModel& costs);

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
  SliceWays ways;
  std::uint32_t ranks_per_node = 0;       // where all nodes have as many, side by side; else 0
  std::vector<std::uint32_t> norm_parts;  // by norm: clips, then LAMB's variables
  std::uint32_t fused_slices = 0;
  bool mixed = false;  // slices and collectives share links

  // The stop of a slice with a way of its own.
  [[nodiscard]] const WayStop& stop(const SliceTable& slice, std::uint32_t rank) const {
    return ways.at(slice.way, rank);
  }
  // Whether the rank has the variable: of a placed graph the ranks of its stage do.
  [[nodiscard]] bool holds(std::uint32_t rank, std::uint32_t variable) const {
    const std::vector<std::uint32_t>& all = variables[variable].slices;
    if (all.empty()) return true;
    const std::vector<ir::Rank>& members = *slices[all.front()].members;
    return std::find(members.begin(), members.end(), ir::Rank(rank)) != members.end();
  }
  // Seconds that `rank` needs to add up what meets there.
  [[nodiscard]] double sum_seconds(const SliceTable& slice, std::uint32_t rank) const {
    return slice.way.is_direct() ? slice.sum_seconds : slice.sum_one * stop(slice, rank).combines;
  }

  // The uplinks that a message from one node to another passes, in order.
  struct Uplink {
    double bytes_per_s = 0;
  };
  std::vector<Uplink> uplinks;
  [[nodiscard]] const std::vector<std::uint32_t>& path(std::uint32_t from, std::uint32_t to) const;

 private:
  void add_nodes(const ir::Program& program, const cluster::Cluster& cluster,
                 const CostModel& costs);
  void count_ranks_per_node();
  void add_switches(const cluster::Cluster& cluster);
  void add_norms(const ir::Program& program);
  void add_slices(const ir::Program& program, const CostModel& costs);
  void add_variables(const ir::Program& program, const CostModel& costs);
  void add_collectives(const ir::Program& program, const CostModel& costs);
  [[nodiscard]] CollectiveLinks links_between(const std::vector<ir::Rank>& members) const;
  void add_transfers(const ir::Program& program, const CostModel& costs);
  void add_roles(const ir::Program& program, const CostModel& costs);
  std::vector<Instruction> flatten(const ir::Program& program, const ir::Stream& stream,
                                   const CostModel& costs);

  // Per node the uplinks towards the top, and downlinks back, outermost last.
  std::vector<std::vector<std::uint32_t>> up_;
  std::vector<std::vector<std::uint32_t>> down_;
  mutable std::vector<std::vector<std::uint32_t>> paths_;  // by from * nodes + to, once asked for
};

}  // namespace autodist::sim
