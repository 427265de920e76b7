// Plans of placed graphs: which stage runs which op.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/strategy/strategy.h"

namespace autodist::testing_jobs {

// The stage of every op.
using Placer = std::function<std::vector<std::uint32_t>(const ir::Graph&, std::uint32_t stages)>;

// Every class of ops that must be together, and every other op, goes anywhere.
Placer anywhere(std::uint32_t seed);

// As `autodist place` does for devices that hold 1.3 times their share of the variables.
std::vector<std::uint32_t> balanced(const ir::Graph& graph, std::uint32_t stages);

// Every variable at the server of the stage that reads it; at the first rank where the graph is not
// placed (`stages` is 1).
strategy::Strategy strategy_of(const ir::Graph& graph, const cluster::Cluster& cluster,
                               std::uint32_t stages, const Placer& placer);

}  // namespace autodist::testing_jobs
