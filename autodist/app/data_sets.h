// Data sets of measured plans, looked at: what they hold, how well rankers order them, and points
// whose times are simulated.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/planning/data_set.h"
#include "autodist/planning/measured.h"
#include "autodist/search/learning/evaluation.h"

namespace autodist::app {

// Per model and cluster: points, ranks, the fastest and the median plan, how much the repeats of
// one plan's steps spread, and how the simulator does there.
std::string stats_table(const std::vector<planning::DataCell>& cells,
                        const planning::MeasuredPlans& plans);
std::string stats_json(const std::vector<planning::DataCell>& cells,
                       const planning::MeasuredPlans& plans);

std::string evaluation_table(const std::vector<search::EvaluationRow>& rows);
std::string evaluation_json(const std::vector<search::EvaluationRow>& rows);
// The figures of `rows` as a page, with what the columns are and the command that made it.
std::string evaluation_page(const std::vector<search::EvaluationRow>& rows,
                            const planning::MeasuredPlans& plans, const std::string& command);

struct SimulatedDataSet {
  std::vector<std::string> models{"vgg16", "bert-large", "ncf"};
  std::vector<std::string> clusters;  // files; empty: the shipped ones of AutoSync's paper
  std::size_t points = 100;           // per model and cluster
  std::uint64_t seed = 0;
};

// Fills AutoSync's layout with proposed plans and their simulated times. The folders of clusters
// are named "simulated-…". Returns the number of points. `stop` is asked before each; `done` told
// of each model and cluster.
std::size_t generate_simulated(const std::string& folder, const SimulatedDataSet& wanted,
                               const std::function<bool()>& stop,
                               const std::function<void(const std::string&)>& done);

}  // namespace autodist::app
