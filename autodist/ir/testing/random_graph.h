// Random valid graphs, for tests that state a law over all graphs.

#pragma once

#include <random>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// A verified graph of 1 to `max_ops` ops over inputs, variables, buffers and constants, with views,
// in-place ops, undeclared writes, random ops and every kind of argument. The same generator state
// gives the same graph.
Graph random_graph(std::mt19937& random, int max_ops = 40);

}  // namespace autodist::ir
