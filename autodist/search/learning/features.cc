#include "autodist/search/learning/features.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autodist/base/check.h"
#include "autodist/base/even_part.h"
#include "autodist/program/loads.h"

namespace autodist::search {
namespace {

struct Load {
  double bytes = 0;
  double pieces = 0;

  void add(double piece) {
    bytes += piece;
    pieces += 1;
  }
};

struct Largest {
  double largest = 0;
  double sum = 0;

  void add(double value) {
    largest = std::max(largest, value);
    sum += value;
  }
};

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

double bytes_of_shard(const ir::Graph& graph, ir::VariableId variable,
                      const strategy::NodeConfig& node, std::size_t shard) {
  const auto bytes = static_cast<double>(ir::bytes_of(graph, variable).value);
  if (node.parts.empty()) return bytes;
  const strategy::Partitioning cut = strategy::parse_partitioner(node.partitioner, node.name);
  const std::int64_t rows = ir::shape_of(graph, variable)[cut.axis];
  const auto [begin, end] = even_part(rows, static_cast<std::int64_t>(shard), cut.shards);
  return bytes * share(static_cast<double>(end - begin), static_cast<double>(rows));
}

struct LoadsByPlace {
  std::map<std::string, Load> servers;  // by address
  std::map<std::int32_t, Load> groups;
};

LoadsByPlace loads_of(const strategy::Strategy& strategy, const ir::Graph& graph) {
  LoadsByPlace loads;
  const auto add = [&](const strategy::Synchronizer& how, double bytes) {
    if (const auto* ps = std::get_if<strategy::PsSynchronizer>(&how)) {
      loads.servers[cluster::address_of(ps->reduction_destination)].add(bytes);
    } else if (const auto* reduce = std::get_if<strategy::AllReduceSynchronizer>(&how)) {
      loads.groups[reduce->group].add(bytes);
    }
  };
  for (const strategy::NodeConfig& node : strategy.nodes) {
    const auto variable = std::find_if(
        graph.variables.begin(), graph.variables.end(),
        [&](const auto& each) { return each.name == strategy::variable_name(node.name); });
    if (variable == graph.variables.end()) continue;
    const ir::VariableId id(static_cast<std::uint32_t>(variable - graph.variables.begin()));
    if (node.parts.empty()) add(node.synchronizer, bytes_of_shard(graph, id, node, 0));
    for (std::size_t i = 0; i < node.parts.size(); ++i) {
      add(node.parts[i].synchronizer, bytes_of_shard(graph, id, node, i));
    }
  }
  return loads;
}

// What the slices and collectives of a Program add up to.
struct Traffic {
  double bytes = 0;
  double collective = 0;
  double every_rank = 0;
  double rows = 0;
  double routed = 0;
  double messages = 0;
  std::vector<double> owned;  // by rank
};

Traffic traffic_of(const program::Program& program) {
  Traffic traffic;
  traffic.owned.resize(program.ranks.size());
  for (const program::Slice& slice : program.slices) {
    const auto bytes = static_cast<double>(program::bytes_of(slice).value);
    traffic.bytes += bytes;
    traffic.owned[slice.owner.value] += bytes;
    const program::Exchange exchange = slice.exchange;
    if (!makes_parameters(exchange)) traffic.every_rank += bytes;
    if (!sums_all_elements(exchange)) traffic.rows += bytes;
    if (is_passed_on(exchange)) traffic.routed += bytes;
    traffic.messages += 2 * (static_cast<double>(slice.members.size()) - 1);
  }
  for (const program::Collective& collective : program.collectives) {
    double bytes = 0;
    for (const ir::VariableId id : collective.variables) {
      bytes += static_cast<double>(ir::bytes_of(*program.graph, id).value);
    }
    traffic.bytes += bytes;
    traffic.collective += bytes;
  }
  return traffic;
}

struct Use {
  double waiting = 0;
  double owning = 0;
  double stolen = 0;
  double sending = 0;
  double receiving = 0;
  double mean_sending = 0;
};

Use use_of(const sim::Simulation& simulation) {
  Use use;
  const double step = simulation.step.value;
  for (const sim::RankUse& rank : simulation.ranks) {
    const auto count = static_cast<double>(simulation.ranks.size());
    use.waiting += share(rank.waiting.value, step * count);
    use.owning += share(rank.owning.value, step * count);
  }
  for (const sim::NodeUse& node : simulation.nodes) {
    const auto count = static_cast<double>(simulation.nodes.size());
    use.stolen += share(node.stolen.value, step * count);
    use.mean_sending += node.sending / count;
    use.sending = std::max(use.sending, node.sending);
    use.receiving = std::max(use.receiving, node.receiving);
  }
  return use;
}

double logarithm(double value) { return std::log(std::max(value, 1e-12)); }

}  // namespace

PaperFeatures paper_features(const strategy::Strategy& strategy, const ir::Graph& graph,
                             const cluster::Cluster& cluster) {
  const cluster::SlowestLink link = cluster::slowest_link(cluster);
  const double slowest = link.bytes_per_s;
  const double latency = link.latency.value;
  const auto replicas = static_cast<double>(strategy.replicas.size());
  const LoadsByPlace loads = loads_of(strategy, graph);
  Largest server[3];
  for (const auto& [address, load] : loads.servers) {
    const auto node =
        std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                     [&, name = address](const auto& each) { return each.address == name; });
    const double rate = node == cluster.nodes.end() ? slowest : node->bandwidth_bytes_per_s;
    server[0].add(2 * replicas * share(load.bytes, rate));
    server[1].add(load.pieces);
    server[2].add(2 * load.pieces * replicas * latency);
  }
  Largest group[3];
  for (const auto& [number, load] : loads.groups) {
    group[0].add(2 * share(replicas - 1, replicas) * share(load.bytes, slowest));
    group[1].add(load.pieces);
    group[2].add(2 * (replicas - 1) * latency);
  }
  PaperFeatures features{};
  for (std::size_t i = 0; i < 3; ++i) {
    features[i] = server[i].largest;
    features[3 + i] = server[i].sum;
    features[6 + i] = group[i].largest;
    features[9 + i] = group[i].sum;
  }
  return features;
}

const std::vector<std::string>& feature_names() {
  static const std::vector<std::string> names = {"step_over_compute",
                                                 "plan_bound",
                                                 "card_bound",
                                                 "owner_bound",
                                                 "chain_bound",
                                                 "waiting",
                                                 "owning",
                                                 "stolen",
                                                 "sending",
                                                 "receiving",
                                                 "mean_sending",
                                                 "slices",
                                                 "messages",
                                                 "slice_bytes",
                                                 "collectives",
                                                 "by_library",
                                                 "at_every_rank",
                                                 "by_rows",
                                                 "routed",
                                                 "largest_owner",
                                                 "owners",
                                                 "ranks",
                                                 "ranks_per_node",
                                                 "bandwidth",
                                                 "bytes",
                                                 "variables",
                                                 "server_transmission",
                                                 "server_transmissions",
                                                 "group_transmission",
                                                 "group_transmissions",
                                                 "server_pieces",
                                                 "servers_pieces",
                                                 "group_pieces",
                                                 "groups_pieces"};
  return names;
}

std::vector<double> plan_features(const strategy::Strategy& strategy,
                                  const program::Program& program, const cluster::Cluster& cluster,
                                  const sim::Simulation& simulation) {
  const double step = simulation.step.value;
  const sim::Bounds& bounds = simulation.bounds;
  const Traffic traffic = traffic_of(program);
  const Use use = use_of(simulation);
  const PaperFeatures paper = paper_features(strategy, *program.graph, cluster);
  const auto ranks = static_cast<double>(program.ranks.size());
  const auto slices = static_cast<double>(program.slices.size());
  const auto owners = static_cast<double>(
      std::count_if(traffic.owned.begin(), traffic.owned.end(), [](double b) { return b > 0; }));
  const double largest = *std::max_element(traffic.owned.begin(), traffic.owned.end());
  std::vector<double> features = {logarithm(share(step, bounds.compute.value)),
                                  share(bounds.plan.value, step),
                                  share(bounds.card.value, step),
                                  share(bounds.owner.value, step),
                                  share(bounds.chain.value, step),
                                  use.waiting,
                                  use.owning,
                                  use.stolen,
                                  use.sending,
                                  use.receiving,
                                  use.mean_sending,
                                  std::log1p(slices),
                                  std::log1p(traffic.messages / ranks),
                                  std::log1p(share(traffic.bytes - traffic.collective, slices)),
                                  std::log1p(static_cast<double>(program.collectives.size())),
                                  share(traffic.collective, traffic.bytes),
                                  share(traffic.every_rank, traffic.bytes),
                                  share(traffic.rows, traffic.bytes),
                                  share(traffic.routed, traffic.bytes),
                                  share(largest, traffic.bytes),
                                  owners / ranks,
                                  std::log(ranks),
                                  ranks / static_cast<double>(cluster.nodes.size()),
                                  logarithm(cluster::slowest_link(cluster).bytes_per_s),
                                  std::log1p(traffic.bytes),
                                  std::log1p(static_cast<double>(program.graph->variables.size()))};
  for (const std::size_t i : {0, 3, 6, 9}) features.push_back(share(paper[i], step));
  for (const std::size_t i : {1, 4, 7, 10}) features.push_back(std::log1p(paper[i]));
  AD_CHECK(features.size() == feature_names().size()) << features.size();
  return features;
}

}  // namespace autodist::search
