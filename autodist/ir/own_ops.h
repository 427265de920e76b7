// The ops of a graph that libtorch has not; capture/op_call.cc has what they do.

#pragma once

#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// Stands for a Boolean which the host reads of a tensor in the forward pass (an `if` on data): (the
// tensor, what the host read at the capture, how many it had read before). It has no results. Where
// a replay finds another value, the step goes another way, which is another graph.
inline constexpr char kGuardOp[] = "autodist::guard";
[[nodiscard]] inline bool is_guard(const Op& op) { return op.name == kGuardOp; }

// What the host read, by the graph's guards, in their order. REQUIRES: verify() holds.
std::vector<bool> booleans_of(const Graph& graph);

// Around an op that draws the same random numbers as an earlier one, as a dropout does that the
// backward pass computes again: (device, generator) to the generator's state, and (device,
// generator, state) to the state that it had before. Both are random, and so keep their places
// among what draws.
inline constexpr char kKeepGeneratorOp[] = "autodist::generator_state";
inline constexpr char kSetGeneratorOp[] = "autodist::set_generator_state";

}  // namespace autodist::ir
