// AutoDist's own eight, in the order of docs/formats/strategy.md.

#include <algorithm>
#include <random>

#include "autodist/search/builders/algorithms.h"
#include "autodist/search/builders/parts.h"

namespace autodist::search {
namespace {

using strategy::AllReduceSynchronizer;
using strategy::PsSynchronizer;
using strategy::Strategy;

using ShardRule = std::int64_t (*)(std::int64_t rows, std::int64_t cap);

// 0 stands for AutoDist's rule without a cap.
std::int64_t cap_of(const BuilderOptions& options) { return whole(options, "max_shards", 0); }

Cut along_first_axis(const ir::Graph& graph, ir::VariableId variable, ShardRule rule,
                     std::int64_t cap) {
  const std::vector<std::int64_t> shape = ir::shape_of(graph, variable);
  return {0, shape.empty() ? 1 : rule(shape.front(), cap)};
}

// Any axis that has more than one element; rows travel whole where the gradient is sparse.
Cut along_random_axis(const ir::Graph& graph, ir::VariableId variable, std::mt19937& generator,
                      std::int64_t cap) {
  const std::vector<std::int64_t> shape = ir::shape_of(graph, variable);
  if (graph.variable(variable).sparse_gradient) {
    return along_first_axis(graph, variable, least_divisor, cap);
  }
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] > 1) axes.push_back(axis);
  }
  if (axes.empty()) return {};
  // The standard's distributions differ between libraries; a remainder does not.
  const std::size_t axis = axes[generator() % axes.size()];
  return {axis, least_divisor(shape[axis], cap)};
}

// `cut_of`: ir::VariableId -> Cut. Shards go to the least loaded servers.
template <typename CutOf>
Strategy on_servers(const ir::Graph& graph, const cluster::Cluster& cluster,
                    const BuilderOptions& options, Loads loads, CutOf cut_of) {
  Strategy strategy = with_replicas(cluster);
  PsSynchronizer ps = ps_of(options);
  for_each_variable(graph, [&](ir::VariableId id) {
    const Cut cut = cut_of(id);
    const std::vector<std::string> servers = loads.give(byte_count(graph, id), cut.shards);
    strategy.nodes.push_back(node_of(graph, id, cut, [&](std::int64_t shard) {
      ps.reduction_destination = servers[static_cast<std::size_t>(shard)];
      return ps;
    }));
  });
  return strategy;
}

Strategy partitioned_ps(const ir::Graph& graph, const cluster::Cluster& cluster,
                        const BuilderOptions& options, ShardRule rule) {
  const std::int64_t cap = cap_of(options);
  return on_servers(graph, cluster, options, Loads(cluster),
                    [&](ir::VariableId id) { return along_first_axis(graph, id, rule, cap); });
}

Cut whole_variable(ir::VariableId) { return {}; }

// Groups count shards. `cut_of`: ir::VariableId -> Cut.
template <typename CutOf>
Strategy partitioned_all_reduce(const ir::Graph& graph, const cluster::Cluster& cluster,
                                const BuilderOptions& options, CutOf cut_of) {
  Strategy strategy = with_replicas(cluster);
  const std::int32_t chunk = whole(options, "chunk_size", 1);
  AllReduceSynchronizer all_reduce = all_reduce_of(options);
  std::int32_t counted = 0;
  for_each_variable(graph, [&](ir::VariableId id) {
    strategy.nodes.push_back(node_of(graph, id, cut_of(id), [&](std::int64_t) {
      all_reduce.group = counted++ / chunk;
      return all_reduce;
    }));
  });
  return strategy;
}

}  // namespace

std::int64_t least_divisor(std::int64_t rows, std::int64_t cap) {
  if (rows < 2) return 1;
  const std::int64_t most = cap > 0 ? std::min(cap, rows) : rows;
  for (std::int64_t divisor = 2; divisor <= most; ++divisor) {
    if (rows % divisor == 0) return divisor;
    if (cap == 0 && divisor > rows / divisor) return rows;  // a prime
  }
  return most;
}

std::int64_t least_non_divisor(std::int64_t rows, std::int64_t cap) {
  if (rows < 3) return least_divisor(rows, cap);
  std::int64_t count = 2;
  while (rows % count == 0) ++count;
  return cap > 0 ? std::min(count, cap) : count;
}

Strategy build_ps(const ir::Graph& graph, const cluster::Cluster& cluster,
                  const BuilderOptions& options) {
  return on_servers(graph, cluster, options, Loads({cluster::servers_of(cluster).front()}, {1}),
                    whole_variable);
}

Strategy build_ps_load_balancing(const ir::Graph& graph, const cluster::Cluster& cluster,
                                 const BuilderOptions& options) {
  return on_servers(graph, cluster, options, Loads(cluster), whole_variable);
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
  return partitioned_all_reduce(graph, cluster, options, whole_variable);
}

Strategy build_partitioned_all_reduce(const ir::Graph& graph, const cluster::Cluster& cluster,
                                      const BuilderOptions& options) {
  const std::int64_t cap = cap_of(options);
  return partitioned_all_reduce(graph, cluster, options, [&](ir::VariableId id) {
    return along_first_axis(graph, id, least_divisor, cap);
  });
}

Strategy build_random_axis_partition_all_reduce(const ir::Graph& graph,
                                                const cluster::Cluster& cluster,
                                                const BuilderOptions& options) {
  const std::int64_t cap = cap_of(options);
  std::mt19937 generator(static_cast<std::uint32_t>(whole(options, "seed", 0)));
  return partitioned_all_reduce(graph, cluster, options, [&](ir::VariableId id) {
    return along_random_axis(graph, id, generator, cap);
  });
}

// Kim et al., "Parallax", EuroSys 2019, as AutoDist has it.
Strategy build_parallax(const ir::Graph& graph, const cluster::Cluster& cluster,
                        const BuilderOptions& options) {
  Strategy strategy = with_replicas(cluster);
  const std::int32_t chunk = whole(options, "chunk_size", 1);
  AllReduceSynchronizer all_reduce = all_reduce_of(options);
  all_reduce.spec = strategy::AllReduceSpec::kNccl;
  PsSynchronizer ps = ps_of(options);
  ps.local_replication = false;  // rows are fetched as they are needed: there is nothing to proxy
  Loads loads(cluster);
  for_each_variable(graph, [&](ir::VariableId id) {
    const bool sparse = graph.variable(id).sparse_gradient;
    if (sparse) ps.reduction_destination = loads.give(byte_count(graph, id), 1).front();
    all_reduce.group = static_cast<std::int32_t>(id.value) / chunk;  // sparse ones count too
    strategy.nodes.push_back(node_of(graph, id, {}, [&](std::int64_t) {
      return sparse ? strategy::Synchronizer(ps) : strategy::Synchronizer(all_reduce);
    }));
  });
  return strategy;
}

}  // namespace autodist::search
