// A plan as numbers: what rankers see of it.

#pragma once

#include <array>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/program/program.h"
#include "autodist/sim/simulator.h"
#include "autodist/strategy/strategy.h"

namespace autodist::search {

// AutoSync's twelve: {largest of the servers, their sum, largest of the groups, their sum} times
// {transmission (seconds), overhead (messages), latency (seconds)} (Zhang et al., NeurIPS 2020,
// section 4). Its published code leaves the factor 2 (n-1)/n of a ring out; ours has it.
constexpr std::size_t kPaperFeatures = 12;
using PaperFeatures = std::array<double, kPaperFeatures>;
PaperFeatures paper_features(const strategy::Strategy& strategy, const ir::Graph& graph,
                             const cluster::Cluster& cluster);

// What a residual is learned from: where the simulator sees the time go, how many messages there
// are and of what size, who owns how much, what the links are. Shares and logarithms, so that what
// was learned on one model and cluster says something of another. Parallel to feature_names().
const std::vector<std::string>& feature_names();
std::vector<double> plan_features(const strategy::Strategy& strategy,
                                  const program::Program& program, const cluster::Cluster& cluster,
                                  const sim::Simulation& simulation);

}  // namespace autodist::search
