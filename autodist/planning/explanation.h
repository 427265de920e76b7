// Why a plan is as it is: what every variable's choice is worth against its next best, what the
// builders would make of the same job, and what bounds the step.

#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autodist/planning/searching.h"

namespace autodist::planning {

// One variable's choice against the best other one by arithmetic (search/autosync/analytic.h),
// everything else as it is.
struct Explained {
  ir::VariableId variable;
  Seconds waited;         // per step, by the simulator: what of it is exposed
  std::string choice;     // "PS at 10.0.0.1:CPU:0"
  std::string why;        // what would carry most with the next best
  std::string next_best;  // "" where there is no other choice (of placed graphs)
  // Of the next best: below 0 where it would be faster, which only the simulator may say.
  Seconds cost;
  bool simulated = false;  // else by arithmetic
};

struct Explanation {
  strategy::Strategy strategy;
  program::Program program;
  sim::CostModel costs;
  sim::Simulation simulation;
  std::vector<Explained> variables;             // largest first; none where the space has no word
  std::vector<search::Candidate> alternatives;  // judged ones first, fastest first
};

// Simulates the strategy, the next best choices of its largest variables, and the builders' in the
// order of their scores until the budget is used up; with `found`, the search's own answer, the
// alternatives are its candidates. Throws as passes::rewrite and costs_of do.
Explanation explain(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
                    const strategy::Strategy& strategy, const SearchRequest& request,
                    const search::Found* found = nullptr);

// At most `most` variables (0: all).
std::string explanation_table(const Explanation& explanation, std::size_t most);
nlohmann::ordered_json explanation_json(const Explanation& explanation);

}  // namespace autodist::planning
