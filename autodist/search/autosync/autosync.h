// The strategy that finds itself. Seeds are all hand-written builders; the arithmetic judge
// (analytic.h) climbs from the best of them, the simulator (judge.h) decides, and the answer is
// never worse than any builder that it has judged. A candidate whose first steps are too slow is
// simulated no further.
//
// What is judged, and in which order, depends on the inputs and the seed alone. A budget in
// simulations therefore always gives the same strategy; one in seconds cuts the same sequence short
// wherever the clock says, and is an upper limit: no simulation is begun that would not end in
// time, going by the longest one of late (the first is always done).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/search/autosync/judge.h"
#include "autodist/search/autosync/space.h"

namespace autodist::search {

struct Budget {
  Seconds seconds{10};            // 0: no limit
  std::uint64_t simulations = 0;  // 0: no limit
};

// "10s", "2m", "500ms", or "40" simulations. Throws Error(kUsage).
Budget parse_budget(const std::string& text);

struct Candidate {
  std::string name;  // of the builder, or "found 3"
  bool builder = false;
  strategy::Strategy strategy;
  std::optional<Point> point;
  Seconds scored;                      // by arithmetic
  std::optional<Judgement> judgement;  // by the simulator
  std::string refused;                 // why it cannot be carried out
};

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

struct Found {
  // Throws as search() does where none of them was judged, or none that was fits in memory.
  explicit Found(std::vector<Candidate> all);
  Found() = default;  // of no search

  std::vector<Candidate> candidates;        // judged ones first, best first; then by score
  std::optional<std::size_t> best_builder;  // among those judged
  std::uint64_t builders = 0;               // known; not all need have been judged
  std::uint64_t builders_judged = 0;
  std::uint64_t simulations = 0;
  std::uint64_t scores = 0;
  double log10_points = 0;  // of the space
  // Every point of the options was scored: none scores better than the best that was.
  bool exhausted = false;
  bool finished = false;  // before the budget was
  Seconds elapsed;

  [[nodiscard]] const Candidate& best() const { return candidates.front(); }
  // Step of the best builder judged over the answer's; 1 where the answer is a builder's.
  [[nodiscard]] double speedup() const;
};

// REQUIRES: verify(*graph) holds. Throws Error(kInfeasible) where no strategy can be carried out or
// fits in memory, saying what lacks least; otherwise as `costs` does.
Found search(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
             const passes::Options& passes, const Judge::Costs& costs, const SearchOptions& options,
             const Clock& clock);

// Every builder with its defaults, and a cap on shards where its rule has none.
std::vector<std::string> seeds();
// Their strategies. `graph`: with the devices' times, by which some of them go (sim::with_times).
std::vector<Candidate> seed_candidates(const ir::Graph& graph, const cluster::Cluster& cluster,
                                       const Space& space);

}  // namespace autodist::search
