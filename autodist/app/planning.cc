#include "autodist/app/planning.h"

#include <algorithm>
#include <chrono>

namespace autodist::app {
namespace {

bool has_priorities(const strategy::Strategy& strategy) {
  return std::any_of(strategy.nodes.begin(), strategy.nodes.end(),
                     [](const strategy::NodeConfig& node) { return node.needed.has_value(); });
}

std::string new_id() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return strategy::make_id(
      std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count());
}

}  // namespace

std::string source_of(const StrategyRequest& request) {
  return request.file.empty() ? "builder " + request.builder : request.file;
}

strategy::Strategy choose_strategy(const StrategyRequest& request, const ir::Graph& graph,
                                   const cluster::Cluster& cluster,
                                   std::vector<std::string>& warnings) {
  strategy::Strategy strategy =
      request.file.empty() ? search::build_strategy(request.builder, graph, cluster, request.own)
                           : strategy::read_strategy(request.file, &warnings);
  if (strategy.id.empty()) strategy.id = new_id();
  strategy::check(strategy, graph, cluster, source_of(request));
  // A file that carries priorities keeps them: they were fixed when it was planned.
  if (!has_priorities(strategy)) strategy::fix_priorities(strategy, graph);
  return strategy;
}

}  // namespace autodist::app
