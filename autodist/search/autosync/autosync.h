// The strategy that finds itself. Seeds are all hand-written builders; the arithmetic judge
// (analytic.h) climbs from the best of them, the simulator (judge.h) decides, and the answer is
// never worse than any builder that it has judged, but for what it does not tell apart (alike.h). A
// candidate whose first steps are too slow is simulated no further.
//
// What is judged, and in which order, depends on the inputs and the seed alone. A budget in
// simulations therefore always gives the same strategy; one in seconds cuts the same sequence short
// wherever the clock says, and is an upper limit: no simulation is begun that would not end in
// time, going by the longest one of late (the first is always done).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "autodist/base/clock.h"
#include "autodist/search/autosync/found.h"
#include "autodist/search/autosync/space.h"

namespace autodist::search {

struct Budget {
  Seconds seconds{10};            // 0: no limit
  std::uint64_t simulations = 0;  // 0: no limit
};

// "10s", "2m", "500ms", or "40" simulations. Throws Error(kUsage).
Budget parse_budget(const std::string& text, const std::string& option = "--budget");

struct Progress {
  std::uint64_t simulations = 0;
  std::uint64_t scores = 0;
  Seconds elapsed;
  Seconds best;  // judged; 0: nothing yet
  std::string best_name;
};

struct SearchOptions {
  Budget budget;
  std::uint64_t seed = 0;
  Allowed allowed;
  sim::SimulationOptions simulation;
  Judge::Correct correct;                         // empty: the simulator alone
  std::function<bool()> stop;                     // asked often; the best so far is kept
  std::function<void(const Progress&)> progress;  // after every simulation
};

// REQUIRES: verify(*graph) holds. Throws Error(kInfeasible) where no strategy can be carried out or
// fits in memory, saying what lacks least; otherwise as `costs` does.
Found search(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
             const passes::Options& passes, const Judge::Costs& costs, const SearchOptions& options,
             const Clock& clock);

}  // namespace autodist::search
