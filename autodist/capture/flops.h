// Work of an op by formula, from its name and the shapes of its tensors: for devices that are not
// here. Pure data.

#pragma once

#include <cstdint>

#include "autodist/ir/graph.h"

namespace autodist::capture {

// Sets flops and bytes_moved of every op and the graph's peak_bytes, each affine in the batch. A
// figure that is not affine is laid through the batches B and 2 B of the example (peak) or is 0
// (the others).
//
// Of flops, a multiply and an add count as two: matrix products and convolutions exactly,
// normalisation, softmax and elementwise ops by operations per element; 0 where there is no
// formula. Bytes are those that the op must read and write, its tensors once each; 0 for a view.
void count_work(ir::Graph& graph);

}  // namespace autodist::capture
