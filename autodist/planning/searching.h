// A plan that was searched, as people read it, and as programs do.

#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "autodist/comm/link_probe.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/placed_plan.h"
#include "autodist/planning/search_settings.h"
#include "autodist/search/autosync/autosync.h"
#include "autodist/sim/calibration.h"
#include "autodist/sim/cost_model.h"

namespace autodist::planning {

struct SearchRequest {
  search::SearchOptions options;
  bool library = true;  // whether a plan may have all-reduces by a library
  passes::Options passes;
  sim::CostOptions costs;
  sim::Calibration calibration = {};
  std::string history = "";  // folder of what was measured before (history.h); empty: none
  std::string ranker = "";   // file of a trained ranker (dataset train), where there is no history
  // Measured ones, at the chief of a job; else what the cluster's file declares.
  std::optional<comm::LinkFigures> links = {};
  // Whether to look for a placement of the ops that is faster than every rank with the whole graph:
  // in this part of a budget in seconds, and in what the search leaves of it. With a budget in
  // simulations only where it is more than 0.
  std::optional<double> placing_share = {};
};

// What `settings` ask of a search, and what was measured of the cluster: as they say, else as the
// file beside the cluster's, whose name is `cluster`. `has_library`: whether the jobs that the plan
// is for can have all-reduces by a library. Throws Error(kUsage) for a budget that is none.
SearchRequest search_request(const SearchSettings& settings, const std::string& cluster,
                             bool has_library);

// `request` with its links, and with what follows from them: slices and windows
// (docs/several-machines.md), which are then not searched. Nor are all-reduces by a library, where
// what is sent is encrypted, or where the request says so.
SearchRequest with_links(SearchRequest request, const ir::Graph& graph,
                         const cluster::Cluster& cluster);

// What measurements add to the simulator.
struct Learned {
  search::Judge::Correct correct;  // empty: nothing
  std::size_t plans = 0;           // measured ones that it was learned from
  std::string from;                // "this cluster's history", or the ranker's file
  // The fastest of this graph's name that the history has, on the cluster and of the batch.
  std::optional<Seconds> best_measured;
  std::string best_id;  // of its strategy
};

// From at least a dozen measured plans of this cluster's history, else from the ranker. `cluster`
// must outlive it. Throws Error(kUsage) for a ranker that is none.
Learned learn(const ir::Graph& graph, const cluster::Cluster& cluster,
              const SearchRequest& request);

struct SearchedPlan : SimulatedPlan {
  search::Found found;             // nothing where no replica can have the whole graph
  bool left_out_library = false;   // all-reduces by a library, as they cannot be encrypted
  std::string placed_because;      // empty: the ops were not placed
  std::string not_placed_because;  // where none was found that is faster
  // One that is faster than this plan (SearchRequest::placing_share).
  std::optional<SimulatedPlan> placement;
  // The best builder that was judged, simulated in the same way.
  std::string builder;
  std::optional<sim::Simulation> builder_simulation;
  Seconds builder_expected;
  Learned learned;

  [[nodiscard]] double speedup() const {
    return builder_simulation ? builder_expected / expected : 1;
  }
};

// Searches, then simulates the answer and the best builder once more as `simulate` does, and takes
// the better. Where nothing data-parallel can be carried out or fits, the ops are placed
// (placed_plan.h). Throws as search::search and costs_of do.
SearchedPlan search_plan(const std::shared_ptr<const ir::Graph>& graph,
                         const cluster::Cluster& cluster, const SearchRequest& request);

// Makes its placement the plan, where there is one.
void take_placement(SearchedPlan& plan);

// "searched …": the answer against the best builder, and what the search did.
std::string search_lines(const SearchedPlan& plan);
// One JSON object, units in the names.
nlohmann::ordered_json search_json(const SearchedPlan& plan);

// One line of progress, without an end of line.
std::string progress_line(const search::Progress& progress);

}  // namespace autodist::planning
