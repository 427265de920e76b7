// A plan that was searched, as people read it, and as programs do.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autodist/passes/pipeline.h"
#include "autodist/search/autosync/autosync.h"
#include "autodist/sim/cost_model.h"

namespace autodist::app {

struct SearchRequest {
  search::SearchOptions options;
  passes::Options passes;
  sim::CostOptions costs;
  std::string cluster_file;  // beside which the calibration lies
  std::string calibration;   // or here
};

struct SearchedPlan {
  search::Found found;
  std::string name;             // of the candidate that was taken
  strategy::Strategy strategy;  // ready to travel
  ir::Program program;
  sim::CostModel costs;
  sim::Simulation simulation;
  // The best builder that was judged, simulated in the same way.
  std::string builder;
  std::optional<sim::Simulation> builder_simulation;

  [[nodiscard]] double speedup() const {
    return builder_simulation ? builder_simulation->step / simulation.step : 1;
  }
};

// Searches, then simulates the answer and the best builder once more as `simulate` does, and takes
// the better. Throws as search::search and costs_of do.
SearchedPlan search_plan(const std::shared_ptr<const ir::Graph>& graph,
                         const cluster::Cluster& cluster, const SearchRequest& request);

// "searched …": the answer against the best builder, and what the search did.
std::string search_lines(const SearchedPlan& plan);
// One JSON object, units in the names.
std::string search_json(const SearchedPlan& plan);

// One line of progress, without an end of line.
std::string progress_line(const search::Progress& progress);

}  // namespace autodist::app
