// Work of an op by formula, from its name and the shapes of its tensors: for devices that are not
// here. Pure data.

#pragma once

#include <cstdint>

#include "autodist/ir/graph.h"

namespace autodist::capture {

// Floating-point operations; a multiply and an add count as two. Matrix products and convolutions
// exactly, normalisation, softmax and elementwise ops by operations per element. 0: no formula.
std::int64_t flops_of(const ir::Graph& graph, const ir::Op& op, std::int64_t batch);

// Bytes that the op must read and write: its tensors once each. 0 for a view.
std::int64_t bytes_moved_by(const ir::Graph& graph, const ir::Op& op, std::int64_t batch);

// Sets flops and bytes_moved of every op and the graph's peak_bytes, each affine in the batch. A
// figure that is not affine is laid through the batches B and 2 B of the example (peak) or is 0
// (the others).
void count_work(ir::Graph& graph);

}  // namespace autodist::capture
