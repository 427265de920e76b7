// Where a searched strategy gains: over links and batches, and against chance. The rows beside
// AutoSync's experiment (strategies.h) that say on which problems there is something to find.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/search/autosync/autosync.h"
#include "autodist/studies/strategies.h"

namespace autodist::studies {

struct SweepCase {
  StrategyCase of;
  double gbit_per_s = 0;  // of every machine's card
};

// Every model that the paper claims a gain for and ResNet-101, each at two batches and at links
// from 1 to 100 Gbit/s. `quick`: at three links.
std::vector<SweepCase> sweep_cases(bool quick);

struct SweepRow {
  SweepCase of;
  StrategyRow row;
};

// On `cluster` with the links of each case, each row handed to `done` as it comes.
std::vector<SweepRow> sweep(const std::vector<SweepCase>& cases, const cluster::Cluster& cluster,
                            const search::SearchOptions& options,
                            const std::function<void(const SweepRow&)>& done);

// Of so many strategies drawn at random from the searched space, how many fit in memory and are
// faster.
struct Chance {
  StrategyCase of;
  std::uint32_t drawn = 0;
  // Than each builder's, from 0 to 1; below 0: that cannot be carried out.
  std::vector<std::pair<std::string, double>> shares;
  double than_found = 0;
};

// Deterministic with a budget in simulations. REQUIRES: drawn > 0. Throws Error(kInfeasible) where
// hardly any strategy can be carried out.
Chance chance_of(const StrategyCase& of, const cluster::Cluster& cluster, std::uint32_t drawn,
                 const search::SearchOptions& options);

// One JSON object, units in the names.
std::string sweep_json(const std::vector<SweepRow>& rows, const std::vector<Chance>& chances);
std::string sweep_page(const std::vector<SweepRow>& rows, const std::vector<Chance>& chances,
                       const std::string& budget);

}  // namespace autodist::studies
