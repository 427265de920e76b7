// The plan where no data-parallel one fits, or where it is slower: the graph's ops spread over the
// ranks.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/autosync/judge.h"
#include "autodist/sim/simulator.h"

namespace autodist::planning {

struct SimulatedPlan {
  std::string name;             // of the candidate, or "placed in 2 stages"
  strategy::Strategy strategy;  // ready to travel
  program::Program program;
  sim::CostModel costs;
  sim::Simulation simulation;
  Seconds expected;  // the simulation's step, corrected by what was learned
};

// Every number of stages that divides the ranks, each placed for throughput where there are
// micro-batches and for the time of one step otherwise, and simulated: the fastest per sample that
// fits. Deterministic. Throws Error(kInfeasible), beginning with `why`, where none does.
SimulatedPlan plan_by_placement(const std::shared_ptr<const ir::Graph>& graph,
                                const cluster::Cluster& cluster, const passes::Options& options,
                                const search::Judge::Costs& costs, const std::string& why);

using CostsInMicroBatches =
    std::function<sim::CostModel(const program::Program&, std::int64_t micro_batches)>;

// Every number S of stages that divides the ranks, in S times the micro-batches of `options`, so
// that a step has the samples that one of a replica per rank has: the fastest that fits, where its
// step takes less than `step`. Deterministic, unless it is cut short after `limit` (0: none)
// or between two numbers of stages by `stop` (empty: never).
std::optional<SimulatedPlan> faster_by_placement(const std::shared_ptr<const ir::Graph>& graph,
                                                 const cluster::Cluster& cluster,
                                                 const passes::Options& options,
                                                 const CostsInMicroBatches& costs, Seconds step,
                                                 Seconds limit, const std::function<bool()>& stop);

}  // namespace autodist::planning
