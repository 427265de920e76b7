// How long tensors and their memory live when a graph runs in its own order. Pure data.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// Per op the slots that no later op names, for an executor to let go of. Those of tensors that
// exist before the step, of gradients and of outputs are never among them.
std::vector<std::vector<std::uint32_t>> slots_freed_after(const Graph& graph);

// Bytes of all storages at the moment when most are alive: tensors that exist before the step and
// gradients and outputs until the end, intermediates from their maker to the last op that names
// one of their views; with what kernels allocate for themselves, as far as it was measured.
std::int64_t peak_bytes(const Graph& graph, std::int64_t batch);

// Bytes of inputs and intermediates at the moment when most of them are alive: what a batch needs
// besides what the model needs anyway, its parameters and gradients. (Gradients are alive when the
// others are not: most of these have been let go of when the last gradient is made.)
std::int64_t activation_bytes(const Graph& graph, std::int64_t batch);

// The same with what kernels allocate for themselves on the kind of device that the graph was
// captured on, as far as it was measured (Cost::scratch).
std::int64_t activation_bytes_as_captured(const Graph& graph, std::int64_t batch);

// The same of a graph that was captured in float32, where it runs under autocast: what products and
// convolutions make is in 16 bits, and so is what is computed of that alone; softmax, losses, norms
// and what reads float32 beside keep their 32. With the 16-bit copies of what products and
// convolutions read in float32, variables among them.
std::int64_t activation_bytes_under_autocast(const Graph& graph, std::int64_t batch);

}  // namespace autodist::ir
