// A Strategy says how every variable is synchronised: by a parameter server or an all-reduce, in
// one piece or partitioned, in which group, how stale. Wire-compatible with AutoDist's
// strategy.proto; what AutoDist does not know has field numbers from 100 on, which its readers
// skip.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/program/compression.h"
#include "autodist/program/program.h"

namespace autodist::strategy {

struct PsSynchronizer {
  std::string reduction_destination;  // "10.0.0.1:CPU:0"
  bool local_replication = false;
  bool sync = true;
  std::int32_t staleness = 0;
  program::Compression compression = {};  // field 100: of the gradients, not of what comes back
  // Field 101: of a dense variable.
  program::Delivery delivery = program::Delivery::kPushed;

  friend bool operator==(const PsSynchronizer&, const PsSynchronizer&);
};

enum class AllReduceSpec : std::uint8_t { kAuto = 0, kNccl = 1, kRing = 2 };
enum class Compressor : std::uint8_t { kNone = 0, kHorovod = 1, kHorovodEf = 2, kPowerSgd = 3 };
// How the sum is made: by owners of slices, to whom contributions go directly (summed in rank
// order), around a ring, up a tree or through one rank per node; by a library (c10d); or by every
// rank, from the factors of everybody's gradient. kBySpec follows the spec (algorithm_of()).
enum class AllReduceAlgorithm : std::uint8_t {
  kBySpec = 0,
  kDirect = 1,
  kLibrary = 2,
  kRing = 3,
  kTree = 4,
  kHierarchical = 5,
  kSufficientFactors = 6,
};
inline constexpr AllReduceAlgorithm kAllReduceAlgorithms[] = {
    AllReduceAlgorithm::kBySpec,
    AllReduceAlgorithm::kDirect,
    AllReduceAlgorithm::kLibrary,
    AllReduceAlgorithm::kRing,
    AllReduceAlgorithm::kTree,
    AllReduceAlgorithm::kHierarchical,
    AllReduceAlgorithm::kSufficientFactors};
std::string name_of(AllReduceAlgorithm algorithm);  // "by_spec", "direct", … "sufficient_factors"

struct AllReduceSynchronizer {
  AllReduceSpec spec = AllReduceSpec::kAuto;
  Compressor compressor = Compressor::kNone;
  std::int32_t group = 0;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kBySpec;  // field 100
  // Field 101: in the place of `compressor`, for what that cannot say.
  program::Compression compression = {};
  // Field 102: where the update rule runs. At the owner, each member keeps the optimizer's state of
  // its own slices alone, and parameters come back in the place of sums.
  program::UpdateAt update_at = program::UpdateAt::kEveryRank;

  friend bool operator==(const AllReduceSynchronizer&, const AllReduceSynchronizer&);
};

using Synchronizer = std::variant<std::monostate, PsSynchronizer, AllReduceSynchronizer>;

// What the synchronizer asks for, in either field: HorovodCompressor is a cast to fp16 (which
// AutoDist's own leaves out), HorovodCompressorEF the same with error feedback, PowerSGDCompressor
// PowerSGD of rank 1 with error feedback.
program::Compression compression_of(const Synchronizer& synchronizer);
program::Compression compression_of(const AllReduceSynchronizer& all_reduce);
// Whether it asks for a codec whose factors a library sums.
bool sums_factors(const Synchronizer& synchronizer);
// How the sum is made: by the algorithm that is named; where none is (kBySpec), by a library for
// factors, by a ring for RING, unless what would be added on the way is compressed, else directly.
AllReduceAlgorithm algorithm_of(const AllReduceSynchronizer& all_reduce);
// Whether the update rule runs where contributions are summed.
bool updates_at_owner(const Synchronizer& synchronizer);
// What a report adds to a server's place: ", asynchronous", ", staleness 2, results asked for"; ""
// of a server whose members wait for every step's results, which it pushes.
std::string words_of(const PsSynchronizer& ps);

// One variable, or one shard of it.
struct NodeConfig {
  std::string name;  // "fc1.weight:0"; shards "fc1.weight/part_0:0"
  Synchronizer synchronizer;
  std::string partitioner;        // "2,1": shards per axis; "" when not partitioned
  std::vector<NodeConfig> parts;  // one per shard
  std::optional<Seconds> needed;  // field 100: when the next step needs it; fixed by the chief

  friend bool operator==(const NodeConfig&, const NodeConfig&);
};

// Which op of the step runs on which device, where one replica is spread over several. Ops go by
// their module and their place among its ops, so that another capture of the model finds them.
struct Placement {
  struct Scope {
    std::string name;                   // of a module; "" for the step's own ops
    std::vector<std::uint32_t> stages;  // of its ops, in the graph's order

    friend bool operator==(const Scope&, const Scope&);
  };
  // By replica, then by stage: `stages` in a row compute one replica.
  std::vector<std::string> devices;
  std::uint32_t stages = 1;
  std::vector<Scope> scopes;

  friend bool operator==(const Placement&, const Placement&);
};

struct Strategy {
  std::string id;  // UTC, "20200205T174341M635634"
  std::string path;
  std::vector<NodeConfig> nodes;
  std::vector<std::string> replicas;  // "10.0.0.1:GPU:0"
  // Field 100: largest piece of a shard on the wire, in bytes; 0 leaves it to the passes' default.
  Bytes slice_bytes;
  // Field 101: slices on their way to one rank, in bytes, that it has not acknowledged; 0 leaves it
  // to the exchange's default.
  Bytes window_bytes;
  std::optional<Placement> placement;  // field 102
  // Field 103: what part of a batch each of `replicas` computes: 3, 1 are three quarters and one.
  // Empty: parts are equal.
  std::vector<std::int64_t> batch_shares;

  friend bool operator==(const Strategy&, const Strategy&);
};

// `stage_of` as a placement's scopes, by op; and back. Throws Error(kUsage), prefixed with `where`,
// where the placement is of another graph, or an op's stage is none of its stages.
std::vector<Placement::Scope> scopes_of(const ir::Graph& graph,
                                        const std::vector<std::uint32_t>& stage_of);
std::vector<std::uint32_t> stages_of_ops(const Placement& placement, const ir::Graph& graph,
                                         const std::string& where);

// A variable's name in a strategy: AutoDist appends ":0".
std::string node_name(const std::string& variable);
std::string variable_name(const std::string& node_name);

// Protobuf, raw. `where` names the source in messages; throws Error(kUsage) for bytes that are not
// a Strategy (truncated, foreign).
std::string serialize(const Strategy& strategy);
Strategy deserialize(const std::string& bytes, const std::string& where);

// Protobuf's text format of the same messages.
std::string to_text(const Strategy& strategy);
// Fields of AutoDist's older documentation (`reduction_destinations`, `chunk_size`) are passed over
// with a line in `warnings` (may be null).
Strategy from_text(const std::string& text, const std::string& where,
                   std::vector<std::string>* warnings = nullptr);

// Either form, told apart by content.
Strategy parse_strategy(const std::string& bytes, const std::string& where,
                        std::vector<std::string>* warnings = nullptr);
Strategy read_strategy(const std::string& path, std::vector<std::string>* warnings = nullptr);

// From the step of this number on, which counts from 0, a training goes on under the strategy.
struct ScheduledStrategy {
  std::int64_t step = 0;
  Strategy strategy;
  std::string name;  // of the plan, for people
};

// Under which strategies a training goes on, in turn. As text, as a strategy.
using StrategyHistory = std::vector<ScheduledStrategy>;
std::string to_text(const StrategyHistory& history);
// Throws Error(kUsage), naming the file, for one that is none, that is empty, or whose steps do not
// ascend.
StrategyHistory read_history(const std::string& path);
// The entry that holds at a step: the last that begins before it or with it, else the first.
std::size_t entry_at(const StrategyHistory& history, std::int64_t step);

// Whether these bytes are one, in either form, rather than any other file; damaged ones may not be
// seen as such.
bool looks_like_strategy(const std::string& bytes);

// How a partitioner string cuts a variable.
struct Partitioning {
  std::size_t axis = 0;     // that is split
  std::int64_t shards = 1;  // of it
  std::size_t axes = 0;     // that the string has
};
// Rows of an axis are split by even_part(). Throws Error(kUsage), prefixed with `where`: empty,
// zero, not a number, all ones, two split axes.
Partitioning parse_partitioner(const std::string& partitioner, const std::string& where);

// Throws Error(kUsage) where none of the strategy's variables is one of the graph's.
void check_is_of(const Strategy& strategy, const ir::Graph& graph, const std::string& where);

// Throws as check_is_of(), and Error(kUsage or kInfeasible) for the first thing that does not fit,
// naming the node: a variable that the graph lacks (nearest name given) or that the strategy lacks,
// more shards than rows, a partitioner of another rank, shards that do not match the partitioner, a
// sparse variable split off axis 0, a destination or replica that is no device of the cluster,
// staleness without sync, two nodes of one name, a placement whose devices are not the replicas,
// shares of a batch that are not one for every replica, below 1, or of a batch that cannot be
// split.
void check(const Strategy& strategy, const ir::Graph& graph, const cluster::Cluster& cluster,
           const std::string& where);

// `strategy` on other machines: devices of an address that is a key of `machines` are those of the
// value. Fits a cluster where those machines have the same devices.
Strategy on_machines(Strategy strategy, const std::map<std::string, std::string>& machines);

// Writes `needed` of every node from the graph's measured costs at the example batch: the start of
// the first op that reads the variable, with ops one after another. Where nothing was measured it
// leaves them out, for the passes' own rule. Called once, at the chief.
void fix_priorities(Strategy& strategy, const ir::Graph& graph);

// "20200205T174341M635634" for a time in microseconds since the epoch.
std::string make_id(std::int64_t unix_microseconds);

}  // namespace autodist::strategy
