// A plan as RankRNN reads it: variable after variable, what it is and how it is synchronised.

#pragma once

#include <cstddef>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/strategy/strategy.h"

namespace autodist::learned {

constexpr std::size_t kStepFeatures = 20;

// Rows of kStepFeatures numbers, one per variable of the strategy, in its order; how a partitioned
// one is synchronised is said of its first part. Shares, logarithms
// and flags, so that one plan can be compared with another; the last of them are the cluster's, the
// same in every row.
std::vector<std::vector<float>> plan_sequence(const strategy::Strategy& strategy,
                                              const ir::Graph& graph,
                                              const cluster::Cluster& cluster);

}  // namespace autodist::learned
