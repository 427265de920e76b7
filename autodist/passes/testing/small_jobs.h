// Steps, clusters and strategies small enough to read, for tests.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/strategy/strategy.h"

namespace autodist::passes {

using GraphPointer = std::shared_ptr<const ir::Graph>;

// Two linear layers: fc1.weight [8, 10], fc1.bias, fc2.weight [10, 4], fc2.bias.
ir::Graph two_layers();
// One matrix [6, 4] that is read first and last, and a bias between.
ir::Graph tied_layers();
// Two layers and a parameter that the step never uses, and one that it reads but does not train.
ir::Graph layers_with_unused();

// `nodes` machines 10.0.0.1, 10.0.0.2, … with one CPU each, the first the chief.
cluster::Cluster hosts(int nodes);

strategy::Synchronizer ps(const std::string& destination);
strategy::Synchronizer direct(int group);
strategy::Synchronizer library(int group,
                               strategy::AllReduceSpec spec = strategy::AllReduceSpec::kAuto);

// Every worker device of the cluster computes; every variable gets what `choose` says.
strategy::Strategy plan(const ir::Graph& graph, const cluster::Cluster& cluster,
                        const std::function<strategy::Synchronizer(std::size_t variable)>& choose);

// Splits the node's variable along `axis` of `axes`; shard i gets what `choose` says.
void split(strategy::NodeConfig& node, std::size_t axis, std::size_t axes, int shards,
           const std::function<strategy::Synchronizer(int shard)>& choose);

}  // namespace autodist::passes
