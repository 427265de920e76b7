// Measured plans as the rankers of search/learning take them: simulated, with their features.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autodist/planning/data_set.h"
#include "autodist/search/autosync/judge.h"
#include "autodist/search/learning/residual.h"
#include "autodist/search/learning/sample.h"

namespace autodist::planning {

struct MeasuredPlans {
  std::vector<search::Sample> samples;
  std::vector<std::string> models;  // by cell
  std::vector<std::string> clusters;
};

// Simulates every point. What cannot be (a graph without times, a plan that the passes refuse) has
// AutoSync's features alone; one line per cell in `warnings` says why.
// `costs`: what things cost there, where it is not what the graph and the cluster say.
using CellCosts = std::function<sim::CostModel(const program::Program&, const cluster::Cluster&)>;
MeasuredPlans measured_plans(const std::vector<DataCell>& cells, std::vector<std::string>& warnings,
                             const CellCosts& costs = {});

// A judge's correction by what was measured: `residual`, times `bias`.
search::Judge::Correct correction(search::Residual residual, double bias,
                                  const cluster::Cluster& cluster);

}  // namespace autodist::planning
