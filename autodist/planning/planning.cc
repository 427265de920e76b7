#include "autodist/planning/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "autodist/base/error.h"
#include "autodist/planning/encryption.h"
#include "autodist/planning/searching.h"

namespace autodist::planning {
namespace {

bool has_priorities(const strategy::Strategy& strategy) {
  return std::any_of(strategy.nodes.begin(), strategy.nodes.end(),
                     [](const strategy::NodeConfig& node) { return node.needed.has_value(); });
}

void keep_variables_of(const ir::Graph& graph, strategy::Strategy& strategy) {
  std::erase_if(strategy.nodes, [&](const strategy::NodeConfig& node) {
    return std::none_of(graph.variables.begin(), graph.variables.end(), [&](const auto& variable) {
      return variable.name == strategy::variable_name(node.name);
    });
  });
}

strategy::Strategy searched(const StrategyRequest& request, const ir::Graph& graph,
                            const cluster::Cluster& cluster) {
  SearchRequest how;
  how.passes.cpu_only = request.cpu_only;
  how.passes.encrypted = encrypts(Encryption::kAuto, cluster);
  how.calibration = request.calibration;
  how.costs = request.costs;
  return search_plan(std::make_shared<const ir::Graph>(graph), cluster, how).strategy;
}

strategy::Strategy made(const StrategyRequest& request, const ir::Graph& graph,
                        const cluster::Cluster& cluster, std::vector<std::string>& warnings) {
  if (!request.file.empty()) return strategy::read_strategy(request.file, &warnings);
  if (request.builder == kSearch) return searched(request, graph, cluster);
  return search::build_strategy(request.builder, graph, cluster, request.own);
}

// A file's, made for fewer ranks, leaves some without work.
void warn_of_idle(const strategy::Strategy& strategy, const cluster::Cluster& cluster,
                  bool cpu_only, const std::string& source, std::vector<std::string>& warnings) {
  const std::set<std::string> busy(strategy.replicas.begin(), strategy.replicas.end());
  std::vector<std::string> idle;
  for (const cluster::Place& place : cluster::ranks_of(cluster, cpu_only)) {
    const std::string device = cluster::device_name(cluster, place);
    if (!place.serves_only && busy.count(device) == 0) idle.push_back(device);
  }
  if (idle.empty()) return;
  warnings.push_back(fmt::format(
      "{}: {} compute{} nothing under it: it was made for {} rank{}. Plan for this cluster, or "
      "name one of as many ranks.",
      source, fmt::join(idle, ", "), idle.size() == 1 ? "s" : "", busy.size(),
      busy.size() == 1 ? "" : "s"));
}

}  // namespace

std::string name_of(const StrategyRequest& request) {
  if (!request.file.empty()) return std::filesystem::path(request.file).filename();
  return request.builder == kSearch ? "search" : request.builder;
}

std::string source_of(const StrategyRequest& request) {
  if (!request.file.empty()) return request.file;
  return request.builder == kSearch ? "search" : "builder " + request.builder;
}

strategy::Strategy choose_strategy(const StrategyRequest& request, const ir::Graph& graph,
                                   const cluster::Cluster& cluster,
                                   std::vector<std::string>& warnings) {
  strategy::Strategy strategy = made(request, graph, cluster, warnings);
  if (request.one_of_several) keep_variables_of(graph, strategy);
  set_id(strategy);
  strategy::check(strategy, graph, cluster, source_of(request));
  if (!request.file.empty()) {
    warn_of_idle(strategy, cluster, request.cpu_only, source_of(request), warnings);
  }
  // A file that carries priorities keeps them: they were fixed when it was planned.
  if (!has_priorities(strategy)) strategy::fix_priorities(strategy, graph);
  return strategy;
}

Predicted predict(const program::Program& program, const cluster::Cluster& cluster,
                  const sim::Calibration& calibration, const sim::CostOptions& costs) {
  sim::check_devices(program, cluster);
  Predicted predicted;
  try {
    predicted.costs = sim::calibrated_costs(program, cluster, costs, calibration);
    predicted.simulation = sim::simulate(program, cluster, predicted.costs);
  } catch (const Error& error) {
    if (costs.precision != sim::Precision::kAsCaptured) throw;  // it was asked for
    predicted.why_not = error.what();
  }
  return predicted;
}

}  // namespace autodist::planning
