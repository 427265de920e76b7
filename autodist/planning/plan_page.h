// What a page says of a plan beyond the plan itself: the predicted step with its memory and its
// timeline, what the next best choice of every variable would cost, and what the builders would
// make of the same job.

#pragma once

#include <memory>
#include <string>

#include "autodist/planning/searching.h"
#include "autodist/report/html/page.h"

namespace autodist::planning {

struct PlanPageRequest {
  std::string chosen_by;                 // "builder PS", "search", a file's name
  SearchRequest how;                     // how the plan was made; its budget is the page's own
  std::string calibration_file;          // of its calibration, where there is one
  const search::Found* found = nullptr;  // of a search: its candidates are the alternatives
  bool timeline = true;                  // a simulated one, where it is not too long
};

// `library`: whether the job could have all-reduces by a library. `calibration_file`: where the
// calibration stands; empty where it has no file.
PlanPageRequest page_request(const std::string& chosen_by, const passes::Options& passes,
                             bool library, const sim::Calibration& calibration,
                             const std::string& calibration_file);

// Fills graph, strategy, program, alternatives and prediction of `page`, and adds a trace. Where
// there can be no prediction, the page says why, and the alternatives are compared by their traffic
// alone.
void add_plan(report::PageInputs& page, const std::shared_ptr<const ir::Graph>& graph,
              const cluster::Cluster& cluster, const strategy::Strategy& strategy,
              const program::Program& program, const PlanPageRequest& request);

}  // namespace autodist::planning
