// What users of other systems run today, as strategies.

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "autodist/search/builders/algorithms.h"
#include "autodist/search/builders/parts.h"

namespace autodist::search {
namespace {

using strategy::AllReduceSynchronizer;
using strategy::PsSynchronizer;
using strategy::Strategy;

// The fewest shards along the first axis of which none is above `most`, as far as there are rows.
Cut at_most(const ir::Graph& graph, ir::VariableId variable, std::int64_t size, std::int64_t most) {
  const std::vector<std::int64_t> shape = ir::shape_of(graph, variable);
  if (shape.empty() || shape.front() < 2 || size == 0) return {};
  const std::int64_t rows_in_one = std::max<std::int64_t>(1, most / (size / shape.front()));
  return {0, (shape.front() + rows_in_one - 1) / rows_in_one};
}

// Partitioned parameter servers: `cut_of` a variable, and `give` chooses the server of each shard.
template <typename CutOf, typename Give>
Strategy sharded(const ir::Graph& graph, const cluster::Cluster& cluster,
                 const BuilderOptions& options, CutOf cut_of, Give give) {
  Strategy strategy = with_replicas(cluster);
  PsSynchronizer ps = ps_of(options);
  for_each_variable(graph, [&](ir::VariableId id) {
    const Cut cut = cut_of(id);
    const double bytes = byte_count(graph, id) / static_cast<double>(cut.shards);
    strategy.nodes.push_back(node_of(graph, id, cut, [&](std::int64_t) {
      ps.reduction_destination = give(bytes);
      return ps;
    }));
  });
  return strategy;
}

enum class Joins { kThisGroup, kThisGroupAsLast, kNextGroup };

// Variables, the last first: about as their gradients become complete.
std::vector<ir::VariableId> backwards(const ir::Graph& graph) {
  std::vector<ir::VariableId> order;
  for (std::size_t i = graph.variables.size(); i-- > 0;) order.emplace_back(i);
  return order;
}

// Groups in `order`. `rule` is told the open group's number and bytes, the next variable and its
// bytes.
template <typename Rule>
Strategy bucketed(const ir::Graph& graph, const cluster::Cluster& cluster,
                  const BuilderOptions& options, const std::vector<ir::VariableId>& order,
                  Rule rule) {
  Strategy strategy = with_replicas(cluster);
  AllReduceSynchronizer all_reduce = all_reduce_of(options);
  double open = 0;
  std::vector<std::int32_t> groups(graph.variables.size());
  std::int32_t group = 0;
  for (const ir::VariableId id : order) {
    const double bytes = byte_count(graph, id);
    const Joins joins = rule(group, open, id, bytes);
    if (joins == Joins::kNextGroup && open > 0) {
      ++group;
      open = 0;
    }
    groups[id.value] = group;
    open += bytes;
    if (joins == Joins::kThisGroupAsLast) {
      ++group;
      open = 0;
    }
  }
  for_each_variable(graph, [&](ir::VariableId id) {
    all_reduce.group = groups[id.value];
    strategy.nodes.push_back(node_of(graph, id, {}, [&](std::int64_t) { return all_reduce; }));
  });
  return strategy;
}

}  // namespace

ServerShares byteps_shares(std::int64_t ranks, std::int64_t server_only) {
  const auto n = static_cast<double>(ranks);
  const auto k = static_cast<double>(server_only);
  if (ranks == 1) return {0, 1};  // nothing needs to travel
  // With more servers than workers these alone carry least: a worker's own link is busy enough.
  if (server_only >= ranks) return {1 / k, 0};
  const double denominator = n * n + k * n - 2 * k;
  return {2 * (n - 1) / denominator, (n - k) / denominator};
}

Strategy build_byteps(const ir::Graph& graph, const cluster::Cluster& cluster,
                      const BuilderOptions& options) {
  const std::int32_t most = whole(options, "partition_bytes", 1);
  std::set<std::string> serve_only;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    if (cluster.nodes[i].role != cluster::NodeRole::kServer) continue;
    serve_only.insert(cluster::device_name(cluster, {i, cluster::Device{}, 0, true}));
  }
  const std::vector<std::string> servers = cluster::servers_of(cluster);
  const auto alone = static_cast<std::int64_t>(serve_only.size());
  const ServerShares shares =
      byteps_shares(static_cast<std::int64_t>(servers.size()) - alone, alone);
  std::vector<double> weights;
  for (const std::string& server : servers) {
    weights.push_back(serve_only.count(server) > 0 ? shares.server_only : shares.co_located);
  }
  Loads loads(servers, weights);
  const auto cut_of = [&](ir::VariableId id) {
    return at_most(graph, id, ir::bytes_of(graph, id).value, most);
  };
  return sharded(graph, cluster, options, cut_of,
                 [&](double bytes) { return loads.give(bytes, 1).front(); });
}

// Jayarajan et al., "Priority-based parameter propagation for distributed DNN training", MLSys
// 2019, section 4: slices of 50,000 parameters, dealt out to the servers in turn.
Strategy build_p3(const ir::Graph& graph, const cluster::Cluster& cluster,
                  const BuilderOptions& options) {
  const std::int32_t parameters = whole(options, "slice_parameters", 1);
  const std::vector<std::string> servers = cluster::servers_of(cluster);
  std::size_t next = 0;
  const auto cut_of = [&](ir::VariableId id) {
    return at_most(graph, id, ir::element_count(graph, id), parameters);
  };
  return sharded(graph, cluster, options, cut_of,
                 [&](double) { return servers[next++ % servers.size()]; });
}

// A tensor closes its bucket when it reaches the limit (c10d's reducer).
Strategy build_ddp_like(const ir::Graph& graph, const cluster::Cluster& cluster,
                        const BuilderOptions& options) {
  const double first = mebibytes(options, "first_bucket_mib");
  const double later = mebibytes(options, "bucket_mib");
  const auto rule = [=](std::int32_t group, double open, ir::VariableId, double bytes) {
    return open + bytes >= (group == 0 ? first : later) ? Joins::kThisGroupAsLast
                                                        : Joins::kThisGroup;
  };
  return bucketed(graph, cluster, options, backwards(graph), rule);
}

// Sergeev and Del Balso, "Horovod", arXiv:1802.05799, section 4, and its documentation: what is
// ready at the end of a cycle leaves, in fusion buffers that take tensors as long as they fit. A
// graph without times has one cycle.
Strategy build_horovod_like(const ir::Graph& graph, const cluster::Cluster& cluster,
                            const BuilderOptions& options) {
  const double buffer = mebibytes(options, "fusion_mib");
  const Seconds cycle = milliseconds(options, "cycle_ms");
  std::vector<double> done;  // by op: in which cycle
  Seconds now;
  for (const ir::Op& op : graph.ops) {
    now += op.cost.at(graph.example_batch);
    done.push_back(std::floor(now.value / cycle.value));
  }
  const auto ready = [&](ir::VariableId id) {
    const auto& complete = graph.variable(id).gradient_complete;
    return complete ? done[complete->value] : 0;
  };
  std::vector<ir::VariableId> order = backwards(graph);
  std::stable_sort(order.begin(), order.end(),
                   [&](ir::VariableId a, ir::VariableId b) { return ready(a) < ready(b); });
  double last = -1;
  const auto rule = [&](std::int32_t, double open, ir::VariableId id, double bytes) {
    const bool same_cycle = std::exchange(last, ready(id)) == ready(id);
    return same_cycle && open + bytes <= buffer ? Joins::kThisGroup : Joins::kNextGroup;
  };
  return bucketed(graph, cluster, options, order, rule);
}

}  // namespace autodist::search
