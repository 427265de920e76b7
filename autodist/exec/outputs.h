// What a step returns beside its loss, from its micro-batches.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/exec/replay.h"
#include "autodist/ir/graph.h"

namespace autodist::exec {

// The outputs behind the loss: memory that no later step writes. REQUIRES: all ops of the step have
// run, end() has not.
std::vector<torch::Tensor> take_outputs(const Replay& replay);

// Which outputs are single numbers, in their order, the loss first.
std::vector<std::size_t> numbers_of(const ir::Graph& graph);

// What a step without rows returns: no rows of what has the batch as its first dimension, a number
// that is none (0 of an integer type) for the rest.
std::vector<torch::Tensor> no_outputs(const ir::Graph& graph);

// Adds those of further `samples` to those of `before`: rows follow on rows, single numbers are
// averaged over samples (in 64 bits), of all else the later counts.
void add_outputs(const ir::Graph& graph, const std::vector<torch::Tensor>& more,
                 std::int64_t samples, std::int64_t before, std::vector<torch::Tensor>& outputs);

}  // namespace autodist::exec
