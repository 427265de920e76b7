#include "autodist/search/builders/algorithms.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "autodist/base/error.h"

namespace autodist::search {
namespace {

using strategy::AllReduceSynchronizer;
using strategy::NodeConfig;
using strategy::PsSynchronizer;
using strategy::Strategy;

bool truth(const BuilderOptions& options, const std::string& key) {
  const std::string& value = options.at(key);
  if (value == "true" || value == "True" || value == "1") return true;
  if (value == "false" || value == "False" || value == "0") return false;
  fail(ErrorCode::kUsage, "builder: {}='{}', true or false expected", key, value);
}

std::int32_t whole(const BuilderOptions& options, const std::string& key, std::int32_t least) {
  const std::string& text = options.at(key);
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    fail(ErrorCode::kUsage, "builder: {}='{}', a whole number of at least {} expected", key, text,
         least);
  }
  return value;
}

template <typename Value>
Value one_of(const BuilderOptions& options, const std::string& key,
             const std::vector<std::pair<std::string, Value>>& known) {
  std::vector<std::string> names;
  for (const auto& [name, value] : known) {
    if (name == options.at(key)) return value;
    names.push_back(name);
  }
  fail(ErrorCode::kUsage, "builder: {}='{}', one of {} expected", key, options.at(key),
       fmt::join(names, ", "));
}

strategy::AllReduceAlgorithm algorithm_of(const BuilderOptions& options) {
  using strategy::AllReduceAlgorithm;
  return one_of<AllReduceAlgorithm>(options, "algorithm",
                                    {{"by_spec", AllReduceAlgorithm::kBySpec},
                                     {"direct", AllReduceAlgorithm::kDirect},
                                     {"library", AllReduceAlgorithm::kLibrary}});
}

PsSynchronizer ps_of(const BuilderOptions& options) {
  PsSynchronizer ps;
  ps.local_replication = truth(options, "local_proxy_variable");
  ps.sync = truth(options, "sync");
  ps.staleness = whole(options, "staleness", 0);
  if (ps.staleness > 0 && !ps.sync) {
    fail(ErrorCode::kUsage, "builder: staleness={} needs sync=true", ps.staleness);
  }
  return ps;
}

Strategy with_replicas(const cluster::Cluster& cluster) {
  Strategy strategy;
  std::vector<std::string> cpus;
  // Ranks begin with the chief's; replicas are listed in file order.
  std::vector<cluster::Place> places = cluster::ranks_of(cluster);
  std::stable_sort(
      places.begin(), places.end(),
      [](const cluster::Place& a, const cluster::Place& b) { return a.node < b.node; });
  for (const cluster::Place& place : places) {
    if (place.serves_only) continue;
    const bool gpu = place.device.kind == cluster::DeviceKind::kGpu;
    (gpu ? strategy.replicas : cpus).push_back(cluster::device_name(cluster, place));
  }
  strategy.replicas.insert(strategy.replicas.end(), cpus.begin(), cpus.end());
  return strategy;
}

std::string part_name(const std::string& variable, std::int64_t index) {
  return strategy::node_name(variable + "/part_" + std::to_string(index));
}

// "4,1,1": `shards` along the first of `axes` axes.
std::string first_axis(std::int64_t shards, std::size_t axes) {
  std::string text = std::to_string(shards);
  for (std::size_t axis = 1; axis < axes; ++axis) text += ",1";
  return text;
}

// The bytes given to every server so far.
class Loads {
 public:
  explicit Loads(const cluster::Cluster& cluster) : servers_(cluster::servers_of(cluster)) {
    bytes_.resize(servers_.size());
  }

  // The `count` least loaded servers, the first of equals first, cycled where there are fewer; each
  // takes an equal share of `bytes`.
  std::vector<std::string> give(double bytes, std::int64_t count) {
    std::vector<std::size_t> order(servers_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return bytes_[a] < bytes_[b]; });
    std::vector<std::string> chosen;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t server = order[static_cast<std::size_t>(i) % order.size()];
      bytes_[server] += bytes / static_cast<double>(count);
      chosen.push_back(servers_[server]);
    }
    return chosen;
  }

 private:
  std::vector<std::string> servers_;
  std::vector<double> bytes_;
};

std::int64_t shards_of(const ir::Graph& graph, ir::VariableId variable,
                       std::int64_t (*rule)(std::int64_t)) {
  const std::vector<std::int64_t> shape = ir::shape_of(graph, variable);
  return shape.empty() ? 1 : rule(shape.front());
}

template <typename Visit>
void for_each_variable(const ir::Graph& graph, Visit visit) {
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    visit(ir::VariableId(i), graph.variables[i].name);
  }
}

Strategy partitioned_ps(const ir::Graph& graph, const cluster::Cluster& cluster,
                        const BuilderOptions& options, std::int64_t (*rule)(std::int64_t)) {
  Strategy strategy = with_replicas(cluster);
  PsSynchronizer ps = ps_of(options);
  Loads loads(cluster);
  for_each_variable(graph, [&](ir::VariableId id, const std::string& name) {
    const std::int64_t shards = shards_of(graph, id, rule);
    const std::vector<std::string> servers =
        loads.give(static_cast<double>(ir::bytes_of(graph, id).value), shards);
    NodeConfig node;
    node.name = strategy::node_name(name);
    if (shards == 1) {
      ps.reduction_destination = servers.front();
      node.synchronizer = ps;
    } else {
      node.partitioner = first_axis(shards, ir::shape_of(graph, id).size());
      for (std::int64_t i = 0; i < shards; ++i) {
        ps.reduction_destination = servers[static_cast<std::size_t>(i)];
        node.parts.push_back({part_name(name, i), ps, "", {}, {}});
      }
    }
    strategy.nodes.push_back(std::move(node));
  });
  return strategy;
}

}  // namespace

std::int64_t least_divisor(std::int64_t rows) {
  if (rows < 2) return 1;
  for (std::int64_t divisor = 2; divisor * divisor <= rows; ++divisor) {
    if (rows % divisor == 0) return divisor;
  }
  return rows;
}

std::int64_t least_non_divisor(std::int64_t rows) {
  if (rows < 3) return least_divisor(rows);
  std::int64_t count = 2;
  while (rows % count == 0) ++count;
  return count;
}

Strategy build_ps(const ir::Graph& graph, const cluster::Cluster& cluster,
                  const BuilderOptions& options) {
  Strategy strategy = with_replicas(cluster);
  PsSynchronizer ps = ps_of(options);
  ps.reduction_destination = cluster::servers_of(cluster).front();
  for_each_variable(graph, [&](ir::VariableId, const std::string& name) {
    strategy.nodes.push_back({strategy::node_name(name), ps, "", {}, {}});
  });
  return strategy;
}

Strategy build_ps_load_balancing(const ir::Graph& graph, const cluster::Cluster& cluster,
                                 const BuilderOptions& options) {
  Strategy strategy = with_replicas(cluster);
  PsSynchronizer ps = ps_of(options);
  Loads loads(cluster);
  for_each_variable(graph, [&](ir::VariableId id, const std::string& name) {
    ps.reduction_destination =
        loads.give(static_cast<double>(ir::bytes_of(graph, id).value), 1).front();
    strategy.nodes.push_back({strategy::node_name(name), ps, "", {}, {}});
  });
  return strategy;
}

Strategy build_partitioned_ps(const ir::Graph& graph, const cluster::Cluster& cluster,
                              const BuilderOptions& options) {
  return partitioned_ps(graph, cluster, options, least_divisor);
}

Strategy build_uneven_partitioned_ps(const ir::Graph& graph, const cluster::Cluster& cluster,
                                     const BuilderOptions& options) {
  return partitioned_ps(graph, cluster, options, least_non_divisor);
}

Strategy build_all_reduce(const ir::Graph& graph, const cluster::Cluster& cluster,
                          const BuilderOptions& options) {
  using strategy::AllReduceSpec;
  using strategy::Compressor;
  Strategy strategy = with_replicas(cluster);
  const std::int32_t chunk = whole(options, "chunk_size", 1);
  AllReduceSynchronizer all_reduce;
  all_reduce.spec = one_of<AllReduceSpec>(options, "all_reduce_spec",
                                          {{"AUTO", AllReduceSpec::kAuto},
                                           {"NCCL", AllReduceSpec::kNccl},
                                           {"RING", AllReduceSpec::kRing}});
  all_reduce.compressor = one_of<Compressor>(options, "compressor",
                                             {{"NoneCompressor", Compressor::kNone},
                                              {"HorovodCompressor", Compressor::kHorovod},
                                              {"HorovodCompressorEF", Compressor::kHorovodEf},
                                              {"PowerSGDCompressor", Compressor::kPowerSgd}});
  all_reduce.algorithm = algorithm_of(options);
  for_each_variable(graph, [&](ir::VariableId id, const std::string& name) {
    all_reduce.group = static_cast<std::int32_t>(id.value) / chunk;
    strategy.nodes.push_back({strategy::node_name(name), all_reduce, "", {}, {}});
  });
  return strategy;
}

Strategy build_partitioned_all_reduce(const ir::Graph& graph, const cluster::Cluster& cluster,
                                      const BuilderOptions& options) {
  Strategy strategy = with_replicas(cluster);
  const std::int32_t chunk = whole(options, "chunk_size", 1);
  AllReduceSynchronizer all_reduce;
  all_reduce.algorithm = algorithm_of(options);
  std::int32_t counted = 0;
  for_each_variable(graph, [&](ir::VariableId id, const std::string& name) {
    const std::int64_t shards = shards_of(graph, id, least_divisor);
    NodeConfig node;
    node.name = strategy::node_name(name);
    if (shards == 1) {
      all_reduce.group = counted++ / chunk;
      node.synchronizer = all_reduce;
    } else {
      node.partitioner = first_axis(shards, ir::shape_of(graph, id).size());
      for (std::int64_t i = 0; i < shards; ++i) {
        all_reduce.group = counted++ / chunk;
        node.parts.push_back({part_name(name, i), all_reduce, "", {}, {}});
      }
    }
    strategy.nodes.push_back(std::move(node));
  });
  return strategy;
}

}  // namespace autodist::search
