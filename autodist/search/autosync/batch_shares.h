// Which part of a batch every replica should compute where their devices are not alike.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autodist/program/program.h"
#include "autodist/sim/cost_model.h"

namespace autodist::search {

// Whole samples of a step by batch part (of a million and more: their ratios), with which all
// devices compute for about as long; at least one each. Empty where equal parts are as good, or the
// batch cannot be split otherwise. `costs_of` gives a Program's costs, its `batch_shares` included.
// `program`: any of the graph and cluster.
std::vector<std::int64_t> balanced_parts(
    program::Program program,
    const std::function<sim::CostModel(const program::Program&)>& costs_of);

// `parts` of balanced_parts() in the order of a strategy's replicas on the cluster.
std::vector<std::int64_t> by_replica(const std::vector<std::int64_t>& parts,
                                     const program::Program& program,
                                     const cluster::Cluster& cluster);

}  // namespace autodist::search
