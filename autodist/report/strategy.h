// A strategy as people read it, without the graph and the cluster that it is for.

#pragma once

#include <string>

#include "autodist/strategy/strategy.h"

namespace autodist::report {

// "PS at 10.0.0.1:CPU:0, staleness 2"; for a partitioned variable how many shards, and what they do
// when they agree.
std::string describe(const strategy::NodeConfig& node);

// The id, the replicas, and a line per variable in the order of the file; shards that differ have
// lines of their own.
std::string strategy_table(const strategy::Strategy& strategy);

// The facts of strategy_table() as one JSON object, units in the names.
std::string strategy_json(const strategy::Strategy& strategy);

}  // namespace autodist::report
