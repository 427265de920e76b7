#include "autodist/app/planning.h"

#include <algorithm>
#include <chrono>

namespace autodist::app {
namespace {

bool has_priorities(const strategy::Strategy& strategy) {
  return std::any_of(strategy.nodes.begin(), strategy.nodes.end(),
                     [](const strategy::NodeConfig& node) { return node.needed.has_value(); });
}

void keep_variables_of(const ir::Graph& graph, strategy::Strategy& strategy) {
  const auto is_other = [&](const strategy::NodeConfig& node) {
    return std::none_of(graph.variables.begin(), graph.variables.end(), [&](const auto& variable) {
      return variable.name == strategy::variable_name(node.name);
    });
  };
  strategy.nodes.erase(std::remove_if(strategy.nodes.begin(), strategy.nodes.end(), is_other),
                       strategy.nodes.end());
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
  if (request.one_of_several) keep_variables_of(graph, strategy);
  if (strategy.id.empty()) strategy.id = new_id();
  strategy::check(strategy, graph, cluster, source_of(request));
  // A file that carries priorities keeps them: they were fixed when it was planned.
  if (!has_priorities(strategy)) strategy::fix_priorities(strategy, graph);
  return strategy;
}

}  // namespace autodist::app
