// How long tensors and their memory live when a graph runs in its own order. Pure data.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::capture {

// Per op the slots that no later op names, for an executor to let go of. Those of tensors that
// exist before the step, of gradients and of outputs are never among them.
std::vector<std::vector<std::uint32_t>> slots_freed_after(const ir::Graph& graph);

// Bytes of all storages at the moment when most are alive: tensors that exist before the step and
// gradients and outputs until the end, intermediates from their maker to the last op that names
// one of their views. What kernels use inside of themselves is not counted.
std::int64_t peak_bytes(const ir::Graph& graph, std::int64_t batch);

}  // namespace autodist::capture
