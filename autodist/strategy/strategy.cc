#include "autodist/strategy/strategy.h"

#include <fmt/format.h>

#include <ctime>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"

namespace autodist::strategy {

bool operator==(const PsSynchronizer& a, const PsSynchronizer& b) {
  return std::tie(a.reduction_destination, a.local_replication, a.sync, a.staleness, a.compression,
                  a.delivery) == std::tie(b.reduction_destination, b.local_replication, b.sync,
                                          b.staleness, b.compression, b.delivery);
}

bool operator==(const AllReduceSynchronizer& a, const AllReduceSynchronizer& b) {
  return std::tie(a.spec, a.compressor, a.group, a.algorithm, a.compression, a.update_at) ==
         std::tie(b.spec, b.compressor, b.group, b.algorithm, b.compression, b.update_at);
}

bool operator==(const NodeConfig& a, const NodeConfig& b) {
  return std::tie(a.name, a.synchronizer, a.partitioner, a.parts, a.needed) ==
         std::tie(b.name, b.synchronizer, b.partitioner, b.parts, b.needed);
}

bool operator==(const Strategy& a, const Strategy& b) {
  const auto tied = [](const Strategy& s) {
    return std::tie(s.id, s.path, s.nodes, s.replicas, s.slice_bytes, s.window_bytes, s.placement,
                    s.batch_shares);
  };
  return tied(a) == tied(b);
}

bool updates_at_owner(const Synchronizer& synchronizer) {
  const auto* all_reduce = std::get_if<AllReduceSynchronizer>(&synchronizer);
  return all_reduce == nullptr || all_reduce->update_at == program::UpdateAt::kOwner;
}

std::string words_of(const PsSynchronizer& ps) {
  std::string words = ps.sync ? "" : ", asynchronous";
  if (ps.staleness != 0) words += fmt::format(", staleness {}", ps.staleness);
  if (ps.delivery == program::Delivery::kAsked) words += ", results asked for";
  return words;
}

program::Compression compression_of(const AllReduceSynchronizer& all_reduce) {
  switch (all_reduce.compressor) {
    case Compressor::kNone:
      break;
    case Compressor::kHorovod:
      return {program::Codec::kFp16, false};
    case Compressor::kHorovodEf:
      return {program::Codec::kFp16, true};
    case Compressor::kPowerSgd:
      return {program::Codec::kPowerSgd, true, 0, 1};
  }
  return all_reduce.compression;
}

program::Compression compression_of(const Synchronizer& synchronizer) {
  if (const auto* ps = std::get_if<PsSynchronizer>(&synchronizer)) return ps->compression;
  const auto* all_reduce = std::get_if<AllReduceSynchronizer>(&synchronizer);
  return all_reduce == nullptr ? program::Compression{} : compression_of(*all_reduce);
}

bool sums_factors(const Synchronizer& synchronizer) {
  const program::Codec codec = compression_of(synchronizer).codec;
  return program::traits_of(codec).unit == program::EncodedUnit::kGradient;
}

AllReduceAlgorithm algorithm_of(const AllReduceSynchronizer& all_reduce) {
  if (all_reduce.algorithm != AllReduceAlgorithm::kBySpec) return all_reduce.algorithm;
  if (sums_factors(all_reduce)) return AllReduceAlgorithm::kLibrary;
  const bool plain = compression_of(all_reduce).codec == program::Codec::kNone;
  return all_reduce.spec == AllReduceSpec::kRing && plain ? AllReduceAlgorithm::kRing
                                                          : AllReduceAlgorithm::kDirect;
}

std::string name_of(AllReduceAlgorithm algorithm) {
  constexpr const char* kNames[] = {"by_spec", "direct",       "library",           "ring",
                                    "tree",    "hierarchical", "sufficient_factors"};
  static_assert(std::size(kNames) == std::size(kAllReduceAlgorithms));
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string node_name(const std::string& variable) { return variable + ":0"; }

std::string variable_name(const std::string& node_name) {
  const bool suffixed = node_name.size() > 2 && node_name.ends_with(":0");
  return suffixed ? node_name.substr(0, node_name.size() - 2) : node_name;
}

Partitioning parse_partitioner(const std::string& partitioner, const std::string& where) {
  Partitioning result;
  std::size_t split = 0;
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::kUsage, "{}: partitioner '{}': {}. Shards per axis expected, as in '2,1'.",
         where, partitioner, why);
  };
  for (std::size_t begin = 0; begin <= partitioner.size();) {
    const std::size_t comma = std::min(partitioner.find(',', begin), partitioner.size());
    const auto count = as_number<std::int64_t>(partitioner.substr(begin, comma - begin));
    if (!count) refuse("not whole numbers");
    if (*count < 1) refuse("a number of shards below 1");
    if (*count > 1) {
      ++split;
      result.axis = result.axes;
      result.shards = *count;
    }
    ++result.axes;
    begin = comma + 1;
  }
  if (split == 0) refuse("no axis is split");
  if (split > 1) refuse("more than one axis is split");
  return result;
}

namespace {

constexpr std::int64_t kMostShare = 1'000'000;
constexpr std::int64_t kMostShares = 3'000'000'000;  // its square is an int64

bool is_synchronous(const NodeConfig& node) {
  const auto* ps = std::get_if<PsSynchronizer>(&node.synchronizer);
  return (ps == nullptr || ps->sync) &&
         std::all_of(node.parts.begin(), node.parts.end(), is_synchronous);
}

// The variables, devices and words that a strategy may name.
class Check {
 public:
  Check(const ir::Graph& graph, const cluster::Cluster& cluster, const std::string& where)
      : graph_(graph), where_(where) {
    for (std::size_t i = 0; i < graph.variables.size(); ++i) {
      variables_.emplace(graph.variables[i].name, ir::VariableId(i));
      names_.push_back(graph.variables[i].name);
    }
    for (const std::string& server : cluster::servers_of(cluster)) devices_.insert(server);
    for (const bool cpu_only : {false, true}) {
      for (const cluster::Place& place : cluster::ranks_of(cluster, cpu_only)) {
        devices_.insert(cluster::device_name(cluster, place));
      }
    }
  }

  void run(const Strategy& strategy) {
    std::set<std::string> seen;
    for (std::size_t i = 0; i < strategy.nodes.size(); ++i) {
      const NodeConfig& node = strategy.nodes[i];
      const std::string here = fmt::format("{}, node {}: '{}'", where_, i, node.name);
      if (!seen.insert(variable_name(node.name)).second) {
        fail(ErrorCode::kUsage, "{}: the variable stands twice. Keep one node.", here);
      }
      check_node(node, here);
    }
    for (const std::string& name : names_) {
      if (seen.count(name) == 0) {
        fail(ErrorCode::kUsage,
             "{}: no node for the variable '{}' of graph '{}'. Is it another graph's?", where_,
             name, graph_.name);
      }
    }
    if (strategy.replicas.empty()) {
      fail(ErrorCode::kUsage,
           "{}: no replica: graph_config.replicas is empty. Name the devices that compute.",
           where_);
    }
    std::set<std::string> replicas;
    for (const std::string& replica : strategy.replicas) {
      check_device(replica, where_ + ": replica");
      if (!replicas.insert(replica).second) {
        fail(ErrorCode::kUsage, "{}: the replica '{}' stands twice. Keep one.", where_, replica);
      }
    }
    if (strategy.placement) check_placement(*strategy.placement, replicas);
    check_batch_shares(strategy);
  }

 private:
  void check_batch_shares(const Strategy& strategy) {
    const std::vector<std::int64_t>& shares = strategy.batch_shares;
    if (shares.empty()) return;
    if (shares.size() != strategy.replicas.size()) {
      fail(ErrorCode::kUsage, "{}: batch_shares: {} of them, {} replicas. Give one for each.",
           where_, shares.size(), strategy.replicas.size());
    }
    for (const std::int64_t share : shares) {
      if (share >= 1 && share <= kMostShare) continue;
      fail(ErrorCode::kUsage, "{}: batch_shares: {}, a whole number from 1 to {} expected", where_,
           share, kMostShare);
    }
    const std::int64_t all = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    if (all > kMostShares) {
      fail(ErrorCode::kUsage, "{}: batch_shares: {} together, at most {} expected", where_, all,
           kMostShares);
    }
    for (const NodeConfig& node : strategy.nodes) {
      if (is_synchronous(node)) continue;
      fail(ErrorCode::kInfeasible,
           "{}: batch_shares: each contribution to '{}' counts as much, whatever its samples "
           "(sync=false); make it synchronous, or leave batch_shares out",
           where_, node.name);
    }
    if (strategy.placement) {
      fail(ErrorCode::kInfeasible,
           "{}: batch_shares: the replicas of a placed graph have equal parts; leave them out",
           where_);
    }
    if (graph_.batch_fixed_reason.empty()) return;
    fail(ErrorCode::kInfeasible, "{}: batch_shares: '{}' can only have {} samples: {}", where_,
         graph_.name, graph_.example_batch, graph_.batch_fixed_reason);
  }

  void check_placement(const Placement& placement, const std::set<std::string>& replicas) {
    const std::set<std::string> devices(placement.devices.begin(), placement.devices.end());
    if (devices != replicas || devices.size() != placement.devices.size()) {
      fail(ErrorCode::kUsage,
           "{}: placement: on {}, the replicas are {}; the same devices expected", where_,
           fmt::join(placement.devices, ", "), fmt::join(replicas, ", "));
    }
    stages_of_ops(placement, graph_, where_);
  }

  void check_node(const NodeConfig& node, const std::string& here) {
    const auto found = variables_.find(variable_name(node.name));
    if (found == variables_.end()) {
      fail(ErrorCode::kUsage, "{}: no such variable in graph '{}'{}", here, graph_.name,
           nearest_hint(variable_name(node.name), names_));
    }
    if (node.partitioner.empty()) {
      if (!node.parts.empty()) {
        fail(ErrorCode::kUsage, "{}: {} shards but no partitioner. Say how it is cut, as '{},1'.",
             here, node.parts.size(), node.parts.size());
      }
      check_synchronizer(node.synchronizer, here);
      return;
    }
    check_partition(node, found->second, here);
  }

  void check_partition(const NodeConfig& node, ir::VariableId id, const std::string& here) {
    const std::vector<std::int64_t> shape = ir::shape_of(graph_, id);
    const auto [axis, shards, axes] = parse_partitioner(node.partitioner, here);
    if (axes != shape.size()) {
      fail(ErrorCode::kUsage,
           "{}: partitioner '{}' has {} axes, the variable [{}] has {}. Give shards of each.", here,
           node.partitioner, axes, fmt::join(shape, ","), shape.size());
    }
    if (shards > shape[axis]) {
      fail(ErrorCode::kInfeasible,
           "{}: axis {} has {} rows, cannot be split in {}. Use at most {}.", here, axis,
           shape[axis], shards, shape[axis]);
    }
    if (graph_.variable(id).sparse_gradient && axis != 0) {
      fail(ErrorCode::kInfeasible,
           "{}: its gradient is sparse, so it can be split along axis 0 only; got axis {}", here,
           axis);
    }
    if (static_cast<std::int64_t>(node.parts.size()) != shards) {
      fail(ErrorCode::kUsage,
           "{}: partitioner '{}' makes {} shards, {} are described. Describe each in part_config.",
           here, node.partitioner, shards, node.parts.size());
    }
    std::set<std::string> names;
    for (const NodeConfig& part : node.parts) {
      if (!names.insert(part.name).second) {
        fail(ErrorCode::kUsage, "{}: the shard '{}' stands twice. Give each its own name.", here,
             part.name);
      }
      if (!part.partitioner.empty() || !part.parts.empty()) {
        fail(ErrorCode::kUsage,
             "{}: shard '{}' is itself partitioned. Cut the variable into more shards.", here,
             part.name);
      }
      check_synchronizer(part.synchronizer, here + ", shard '" + part.name + "'");
    }
  }

  void check_synchronizer(const Synchronizer& synchronizer, const std::string& here) {
    if (const auto* ps = std::get_if<PsSynchronizer>(&synchronizer)) {
      check_device(ps->reduction_destination, here + ": reduction_destination");
      if (ps->staleness < 0) {
        fail(ErrorCode::kUsage, "{}: staleness {}, 0 or more expected", here, ps->staleness);
      }
      if (ps->staleness > 0 && !ps->sync) {
        fail(ErrorCode::kUsage, "{}: staleness {} needs sync: true. Set it, or staleness to 0.",
             here, ps->staleness);
      }
      check_compression(ps->compression, here);
      if (sums_factors(*ps)) {
        fail(ErrorCode::kUsage,
             "{}: PowerSGD at a parameter server, and it sums factors of a matrix, which takes an "
             "all-reduce. Use fp16, bf16 or topk.",
             here);
      }
    } else if (const auto* all_reduce = std::get_if<AllReduceSynchronizer>(&synchronizer)) {
      if (all_reduce->group < 0) {
        fail(ErrorCode::kUsage, "{}: group {}, 0 or more expected", here, all_reduce->group);
      }
      check_compression(all_reduce->compression, here);
      if (all_reduce->compressor != Compressor::kNone &&
          all_reduce->compression.codec != program::Codec::kNone) {
        fail(ErrorCode::kUsage, "{}: both a compressor and a compression, one expected", here);
      }
    } else {
      fail(ErrorCode::kUsage,
           "{}: no synchronizer. PSSynchronizer or AllReduceSynchronizer expected.", here);
    }
  }

  static void check_compression(const program::Compression& compression, const std::string& here) {
    const bool top_k = compression.codec == program::Codec::kTopK;
    if (top_k && !(compression.density > 0 && compression.density <= 1)) {
      fail(ErrorCode::kUsage, "{}: top-k with density {}, a share above 0 and up to 1 expected",
           here, compression.density);
    }
    const bool power_sgd = compression.codec == program::Codec::kPowerSgd;
    if (power_sgd && compression.rank < 1) {
      fail(ErrorCode::kUsage, "{}: PowerSGD of rank {}, a whole number of at least 1 expected",
           here, compression.rank);
    }
    if (top_k && !compression.error_feedback) {
      fail(ErrorCode::kUsage,
           "{}: top-k without error feedback would drop the rest of every gradient; set "
           "error_feedback: true",
           here);
    }
  }

  void check_device(const std::string& device, const std::string& here) {
    if (devices_.count(device) > 0) return;
    fail(ErrorCode::kInfeasible, "{} '{}' is no device of the cluster. It has {}.", here, device,
         fmt::join(devices_, ", "));
  }

  const ir::Graph& graph_;
  const std::string& where_;
  std::map<std::string, ir::VariableId> variables_;
  std::vector<std::string> names_;
  std::set<std::string> devices_;
};

}  // namespace

void check_is_of(const Strategy& strategy, const ir::Graph& graph, const std::string& where) {
  std::set<std::string> names;
  for (const ir::Variable& variable : graph.variables) names.insert(variable.name);
  const auto is_known = [&](const NodeConfig& node) {
    return names.count(variable_name(node.name)) > 0;
  };
  if (strategy.nodes.empty() || names.empty() ||
      std::any_of(strategy.nodes.begin(), strategy.nodes.end(), is_known)) {
    return;
  }
  fail(
      ErrorCode::kUsage,
      "{}: none of its {} variables ('{}', …) is one of graph '{}': it was made for another model. "
      "Take one that was made for this graph.",
      where, strategy.nodes.size(), variable_name(strategy.nodes.front().name), graph.name);
}

void check(const Strategy& strategy, const ir::Graph& graph, const cluster::Cluster& cluster,
           const std::string& where) {
  check_is_of(strategy, graph, where);
  Check(graph, cluster, where).run(strategy);
}

namespace {

void move(std::string& device, const std::map<std::string, std::string>& machines) {
  const auto machine = machines.find(cluster::address_of(device));
  if (machine == machines.end()) return;
  device.replace(0, machine->first.size(), machine->second);
}

void move(NodeConfig& node, const std::map<std::string, std::string>& machines) {
  if (auto* const ps = std::get_if<PsSynchronizer>(&node.synchronizer)) {
    move(ps->reduction_destination, machines);
  }
  for (NodeConfig& part : node.parts) move(part, machines);
}

}  // namespace

Strategy on_machines(Strategy strategy, const std::map<std::string, std::string>& machines) {
  for (NodeConfig& node : strategy.nodes) move(node, machines);
  for (std::string& device : strategy.replicas) move(device, machines);
  if (strategy.placement) {
    for (std::string& device : strategy.placement->devices) move(device, machines);
  }
  return strategy;
}

void fix_priorities(Strategy& strategy, const ir::Graph& graph) {
  std::vector<Seconds> starts;
  Seconds now;
  for (const ir::Op& op : graph.ops) {
    starts.push_back(now);
    now += op.cost.at(graph.example_batch);
  }
  if (now == Seconds{}) return;
  std::map<std::string, Seconds> needed;
  for (const ir::Variable& variable : graph.variables) {
    if (variable.first_use) needed[variable.name] = starts[variable.first_use->value];
  }
  for (NodeConfig& node : strategy.nodes) {
    const auto found = needed.find(variable_name(node.name));
    if (found != needed.end()) node.needed = found->second;
  }
}

std::string make_id(std::int64_t unix_microseconds) {
  AD_CHECK(unix_microseconds >= 0) << "a time before 1970";
  const std::time_t seconds = unix_microseconds / 1'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}M{:06}", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     unix_microseconds % 1'000'000);
}

}  // namespace autodist::strategy
