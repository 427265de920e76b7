// The plan where no data-parallel one fits: the graph's ops spread over the ranks.

#pragma once

#include <memory>
#include <string>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/autosync/judge.h"
#include "autodist/sim/simulator.h"

namespace autodist::app {

struct PlacedPlan {
  std::string name;  // "placed in 2 stages"
  strategy::Strategy strategy;
  ir::Program program;
  sim::CostModel costs;
  sim::Simulation simulation;
};

// Every number of stages that divides the ranks, each placed for throughput where there are
// micro-batches and for the time of one step otherwise, and simulated: the fastest per sample that
// fits. Deterministic. Throws Error(kInfeasible), beginning with `why`, where none does.
PlacedPlan plan_by_placement(const std::shared_ptr<const ir::Graph>& graph,
                             const cluster::Cluster& cluster, const passes::Options& options,
                             const search::Judge::Costs& costs, const std::string& why);

}  // namespace autodist::app
