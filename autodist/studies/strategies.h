// AutoSync's experiment (Zhang et al., "AutoSync: learning to synchronize for data-parallel
// distributed deep learning", NeurIPS 2020, section 5) in the simulator: what a searched strategy
// gains over what other systems do, on the paper's two clusters.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/planning/searching.h"

#include "autodist/search/autosync/autosync.h"

namespace autodist::studies {

struct StrategyCase {
  std::string model;     // a shipped graph
  std::string name;      // in the names of figures
  std::int64_t batch;    // samples per replica
  bool claimed = false;  // among those that the paper claims a gain for
};
const std::vector<StrategyCase>& strategy_cases();

// First in, first out: what is complete first is needed first.
void forget_priorities(strategy::Strategy& strategy, const ir::Graph& graph);

// A system as it runs by itself.
struct OwnSystem {
  std::string name;
  std::string builder;
  bool whole_tensors = false;  // no slices
  bool priorities = false;     // else first in, first out
};
// All have a barrier: a step begins when all variables are there.
const std::vector<OwnSystem>& own_systems();

// What `system` does, without its barrier, which a Strategy cannot say.
strategy::Strategy strategy_of(const OwnSystem& system, const ir::Graph& graph,
                               const cluster::Cluster& cluster);

struct BuilderStep {
  std::string builder;
  strategy::Strategy strategy;
  std::optional<Seconds> step;  // none: it cannot be carried out
};
// What the strategies of `builders` ("NAME" or "NAME:key=value,…") take on our engine. Those that
// go by time go by the devices'. `request` has its links (with_links).
std::vector<BuilderStep> builder_steps(const std::shared_ptr<const ir::Graph>& graph,
                                       const cluster::Cluster& cluster,
                                       const planning::SearchRequest& request,
                                       const std::vector<std::string>& builders);

struct StrategyRow {
  std::string cluster;
  StrategyCase of;
  std::vector<Seconds> own;  // by own_systems()
  std::string best_builder;  // of all, on our engine, with priorities
  Seconds builder_step;
  Seconds found_step;
  std::string found;
  Seconds plan_bound;
  Seconds problem_bound;
  std::uint64_t simulations = 0;
  Seconds search_seconds;

  [[nodiscard]] std::size_t best_own() const;
  [[nodiscard]] double gain_over_own() const { return own[best_own()] / found_step; }
  [[nodiscard]] double gain_on_equal_engine() const { return builder_step / found_step; }
  // What no strategy can exceed.
  [[nodiscard]] double ideal_gain() const { return own[best_own()] / problem_bound; }
  [[nodiscard]] double gap() const { return found_step / problem_bound - 1; }
};

// `cluster` is named `name` in the row.
StrategyRow compare_strategies(const StrategyCase& of, const cluster::Cluster& cluster,
                               const std::string& name, const search::SearchOptions& options);

// Every case on both clusters of `folder` (data/clusters), each row handed to `done` as it comes.
std::vector<StrategyRow> compare_all(const std::string& folder,
                                     const search::SearchOptions& options,
                                     const std::vector<std::string>& models,
                                     const std::function<void(const StrategyRow&)>& done);

// How long a search takes with the budget of `autodist plan`, and what it misses: of the claimed
// cases on cluster B, the largest share by which a search that may take `longer` finds a shorter
// step. "search_s_bert_large_16" and "loss_against_long_search".
std::map<std::string, double> search_speed(const std::string& folder, Seconds longer);

// The figures of docs/benchmarks/search.md by name.
std::map<std::string, double> strategy_figures(const std::vector<StrategyRow>& rows);
std::string strategy_table(const std::vector<StrategyRow>& rows);
// `timed`: the budget is a time, so the page says what each search took. One in simulations makes
// the same page on every machine.
std::string strategy_page(const std::vector<StrategyRow>& rows, const std::string& budget,
                          bool timed);

}  // namespace autodist::studies
