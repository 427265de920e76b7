// A captured step as people read it: what it is, what it trains, what it costs.

#pragma once

#include <string>

#include "autodist/ir/graph.h"

namespace autodist::report {

// Name, batch, ops, variables, buffers, FLOPs, measured time, peak memory: one line each.
std::string summary(const ir::Graph& graph);
std::string summary_json(const ir::Graph& graph);  // one object, units in the names

// All variables in graph order: shape, dtype, bytes, first use, update rule.
std::string variables_table(const ir::Graph& graph);

// The `most` ops (0: all) with the largest measured time at the example batch, summed per op and
// scope.
std::string costs_table(const ir::Graph& graph, std::size_t most, std::size_t columns = 0);

// The ops as a graph in DOT (Graphviz): data flow, variables as boxes, forward and backward
// coloured.
std::string to_dot(const ir::Graph& graph);

}  // namespace autodist::report
