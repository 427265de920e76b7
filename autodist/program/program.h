// A Program is what the whole job does in one step: one table of slices, and one list of streams
// per role (a set of ranks that do the same). Passes write it; the simulator and the executor read
// it.
//
// No measured figure stands in it but those that the Strategy fixes (`needed`), so every rank that
// rewrites the same Graph, Strategy and Cluster gets the same Program, and digest_of() proves it.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/base/id.h"
#include "autodist/base/units.h"
#include "autodist/ir/graph.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/program/exchange.h"

namespace autodist::program {

// A process with one device (or a node that only serves). 0 is the chief.
using Rank = Id<struct RankTag>;
using ShardId = Id<struct ShardTag>;
using SliceId = Id<struct SliceTag>;
using CollectiveId = Id<struct CollectiveTag>;
using ClipId = Id<struct ClipTag>;
using StageTransferId = Id<struct StageTransferTag>;

struct RankInfo {
  std::string node;    // address
  std::string device;  // "10.0.0.1:CPU:0"
  // Its place among the ranks that compute; nothing for a rank that only serves. Each computes a
  // part of the batch or, of a placed graph, a stage of a part (Program::stages).
  std::optional<std::uint32_t> replica;

  friend bool operator==(const RankInfo&, const RankInfo&);
};

// Rows [begin, end) of a variable along `axis`; the whole variable when it is not partitioned.
struct Shard {
  ir::VariableId variable;
  std::string name;  // "fc1.weight" or "fc1.weight/part_0"
  std::uint32_t axis = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t elements = 0;

  friend bool operator==(const Shard&, const Shard&);
};

// Elements [begin, end) of a shard, in the shard's own row-major order.
struct Piece {
  ShardId shard;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const Piece&, const Piece&);
};

// A scheduling piece on the wire. Members send their gradients to the owner, which sums them in
// rank order once the last is in, and sends the result back to all of them.
struct Slice {
  std::vector<Piece> pieces;  // one dtype; several: small neighbours fused
  DType dtype = DType::kFloat32;
  Rank owner;
  Seconds needed;  // first use after the step's start: the priority; smaller leaves first
  std::vector<Rank> members;  // ascending
  Slices exchange = {};

  friend bool operator==(const Slice&, const Slice&);
};
std::int64_t element_count(const Slice& slice);
// Whether this rank makes the result of a slice: sums the contributions and, where owners update,
// applies the update.
bool combines(const Slice& slice, Rank rank);
Bytes bytes_of(const Slice& slice);

// One library all-reduce over the concatenated gradients of its variables.
struct Collective {
  std::vector<ir::VariableId> variables;
  DType dtype = DType::kFloat32;
  std::vector<Rank> members;
  std::string spec;  // "AUTO", "NCCL", "RING": what the Strategy asks for
  Library exchange = {};

  friend bool operator==(const Collective&, const Collective&);
};

// Of a placed graph: a value that a stage makes and others of its replica read, or the state of the
// random generator, which the stages of a replica share.
struct StageTransfer {
  std::optional<ir::ValueId> value;  // nothing: the generator's state
  std::uint32_t micro_batch = 0;
  std::uint32_t from = 0;         // stage
  std::vector<std::uint32_t> to;  // stages, ascending

  friend bool operator==(const StageTransfer&, const StageTransfer&);
};

// As traces call it: "%12 of stage 0", "the generator of stage 1".
std::string name_of(const StageTransfer& transfer);

// How a variable is synchronised: its slices, or a library collective, or neither (one rank alone,
// or unused by the step).
struct VariablePlan {
  std::vector<SliceId> slices;
  std::optional<CollectiveId> collective;
  std::optional<ClipId> clip;  // its update waits for this norm

  friend bool operator==(const VariablePlan&, const VariablePlan&);
};

// Instructions. Within a stream they are issued in order; across streams only stated dependencies
// hold.
struct Gate {  // waits for the version of the variable that this step may use
  ir::VariableId variable;
};
// Asks the owners for the rows that the step reads, by the values that hold their numbers, or for
// the whole variable (no values); the variable's gate waits for them.
struct Fetch {
  ir::VariableId variable;
  std::vector<ir::ValueId> rows;
};
struct Compute {
  ir::OpId op;
  std::uint32_t micro_batch = 0;
};
// The gradient is complete: hand it over, do not wait. Of a micro-batch before the last: add it up.
struct Contribute {
  ir::VariableId variable;
  ir::ValueId gradient;
  std::uint32_t micro_batch = 0;
};
struct Release {  // last read of this step: a newer version may be installed from here on
  ir::VariableId variable;
};
// Keeps the two matrices whose product will be the gradient, for its Contribute: before the op that
// multiplies them, which may be the last to read them.
struct KeepFactors {
  ir::VariableId variable;
  ir::ValueId left;
  ir::ValueId right;
};
struct AllReduce {  // a library collective; the order of these is the same on all ranks
  CollectiveId collective;
};
// Applies the rule at this rank: after a collective, or when the rank is alone. What slices bring
// is applied as it is installed, without an instruction.
struct Update {
  ir::VariableId variable;
};
// A declared barrier: the joint norm of a clip's averaged gradients, before the first Update here
// of a variable of the clip. Owners and installations wait for it by VariablePlan::clip.
struct Norm {
  ClipId clip;
};
// A declared barrier behind the last gradient: no variable of this step is updated before every
// rank that computes has said whether its gradients are finite. Where one is not, nobody updates.
struct AgreeFinite {
  ir::LossScaling scaling;
};
// A declared barrier that only the simulator performs: the stream waits until every variable has
// the step's version, as the loops of other systems do (docs/decisions/032). A Program that is
// executed has none.
struct StepBarrier {};
struct Send {  // its value is there: hand it over, do not wait
  StageTransferId transfer;
};
struct Receive {  // waits for it
  StageTransferId transfer;
};
using Instruction = std::variant<Gate, Compute, Contribute, Release, AllReduce, Update, Norm,
                                 AgreeFinite, Fetch, KeepFactors, Send, Receive, StepBarrier>;
bool operator==(const Instruction& a, const Instruction& b);

enum class StreamKind : std::uint8_t { kCompute, kCollective, kTransfer };
std::string name_of(StreamKind kind);  // "compute", "collective", "transfer"

struct Stream {
  StreamKind kind = StreamKind::kCompute;
  std::vector<Instruction> instructions;

  friend bool operator==(const Stream&, const Stream&);
};

// Ranks that do the same.
struct Role {
  std::vector<Rank> ranks;
  std::vector<Stream> streams;  // empty for ranks that only serve

  friend bool operator==(const Role&, const Role&);
};

// What may be on its way over one network card, in windows: more than one, so that a slow
// destination does not hold up the others.
inline constexpr std::int64_t kWindowsPerCard = 4;

struct Program {
  std::shared_ptr<const ir::Graph> graph;
  std::vector<RankInfo> ranks;
  std::vector<Shard> shards;
  std::vector<Slice> slices;
  std::vector<Collective> collectives;
  std::vector<VariablePlan> variables;  // parallel to graph->variables
  std::vector<Role> roles;
  // Ranks that share the ops of one replica: `stages` consecutive RankInfo::replica. Above 1 the
  // graph is placed: every stage has a role, and every op stands in one of them.
  std::uint32_t stages = 1;
  std::uint32_t micro_batches = 1;       // of a placed graph's step
  std::vector<StageTransfer> transfers;  // of a placed graph
  // On its way from a rank to one other at most; 0: as whoever runs it has it by default.
  Bytes window;
  // What each part of a batch is in relation to the others; empty: they are equal.
  std::vector<std::int64_t> batch_shares;

  [[nodiscard]] const StageTransfer& transfer(StageTransferId id) const {
    return transfers[id.value];
  }
  [[nodiscard]] bool is_placed() const { return stages > 1; }
  // Parts of the batch, and which one a rank works on with which stage. REQUIRES: it computes.
  [[nodiscard]] std::uint32_t batch_parts() const { return replica_count() / stages; }
  [[nodiscard]] std::uint32_t batch_part(Rank rank) const {
    return *ranks[rank.value].replica / stages;
  }
  [[nodiscard]] std::uint32_t stage(Rank rank) const { return *ranks[rank.value].replica % stages; }
  // The rank of a stage of the same replica.
  [[nodiscard]] Rank stage_mate(Rank rank, std::uint32_t stage) const;

  [[nodiscard]] const Slice& slice(SliceId id) const { return slices[id.value]; }
  [[nodiscard]] const Shard& shard(ShardId id) const { return shards[id.value]; }
  [[nodiscard]] const VariablePlan& plan(ir::VariableId id) const { return variables[id.value]; }
  [[nodiscard]] std::uint32_t replica_count() const;  // ranks that compute
  [[nodiscard]] bool computes(Rank rank) const { return ranks[rank.value].replica.has_value(); }
  [[nodiscard]] std::vector<Rank> computing_ranks() const;  // ascending
  // Of all slices of the variable.
  [[nodiscard]] Exchange exchange(ir::VariableId id) const;
  // The most steps by which a gate may lag behind; nothing where some gate has no bound.
  [[nodiscard]] std::optional<std::uint32_t> lag() const;
  // Steps whose contributions may be on their way at once.
  [[nodiscard]] std::uint32_t open_steps() const;
  // Whether every gate waits for the version of its own step. Else it depends on the clock which
  // values it finds.
  [[nodiscard]] bool in_step() const { return lag() == 0; }
  // Whether copies of all variables have all their elements between steps.
  [[nodiscard]] bool keeps_whole_copies() const;
  // Whether a run repeats bit for bit: a library adds up in an order of its own.
  [[nodiscard]] bool reproducible() const { return in_step() && collectives.empty(); }
};

// What the Program agrees on finiteness for; nothing without loss scaling.
std::optional<ir::LossScaling> loss_scaling_of(const Program& program);

// The part that one rank runs. REQUIRES: rank < program.ranks.size().
const Role& role_of(const Program& program, Rank rank);

// Samples of a global batch of `batch` that replica `index` of `count` takes, as NumPy's
// array_split: the first batch % count replicas take one more. [begin, end)
std::pair<std::int64_t, std::int64_t> replica_rows(std::int64_t batch, std::uint32_t index,
                                                   std::uint32_t count);

// Samples of a global batch of `batch` that a part of it has: as `batch_shares` say, down to whole
// samples, else as replica_rows() divides it. [begin, end). REQUIRES: part < program.batch_parts().
std::pair<std::int64_t, std::int64_t> part_rows(const Program& program, std::int64_t batch,
                                                std::uint32_t part);

// Of the text form and the digest. Processes whose formats differ have other digests, too.
inline constexpr std::uint32_t kProgramFormat = 2;

// Covers the graph's structure and update rules, ranks, slices, collectives, streams.
Digest digest_of(const Program& program);

// The text form of docs/formats/program.md.
std::string to_text(const Program& program);

// Throws InternalError (a pass is wrong): ids out of range, slices that overlap or leave elements
// of a used variable uncovered, an op missing or twice, a gate after a read, a contribute before
// the gradient is complete, a release before the last read; of a placed graph also a value that is
// read where it is not, and a storage that two stages touch and one writes.
void verify(const Program& program);

}  // namespace autodist::program
