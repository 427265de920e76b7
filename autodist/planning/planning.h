// From a request to a Strategy that is ready to travel: chosen, checked, with its priorities fixed.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/planning/defaults.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/calibration.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/simulator.h"
#include "autodist/strategy/strategy.h"

namespace autodist::planning {

struct StrategyRequest {
  std::string builder = kDefaultBuilder;  // "NAME" or "NAME:key=value,…", or kSearch
  std::string file;                       // a strategy file; takes the builder's place
  std::vector<search::Builder> own;       // a user's builders, beside ours
  // The graph is one of several: the file's nodes for variables that it has not are left out.
  bool one_of_several = false;
  // Of a search, whose budget is the default's.
  sim::Calibration calibration = {};
  sim::CostOptions costs = {};
  bool cpu_only = false;
};

// What its plan is called: the builder, the file without its folders, or "search".
std::string name_of(const StrategyRequest& request);
// Where a strategy comes from, for messages: the file's path, "search" or "builder NAME".
std::string source_of(const StrategyRequest& request);

// Throws as strategy::check and search::build_strategy do. What a file holds and we pass over is
// added to `warnings`.
strategy::Strategy choose_strategy(const StrategyRequest& request, const ir::Graph& graph,
                                   const cluster::Cluster& cluster,
                                   std::vector<std::string>& warnings);

// A step of the plan as it stands, or why there is no prediction: a graph that was read without
// times, on devices that the cluster does not describe. Throws as sim::check_devices does.
struct Predicted {
  sim::CostModel costs;
  std::optional<sim::Simulation> simulation;
  std::string why_not;
};
Predicted predict(const program::Program& program, const cluster::Cluster& cluster,
                  const sim::Calibration& calibration, const sim::CostOptions& costs = {});

}  // namespace autodist::planning
