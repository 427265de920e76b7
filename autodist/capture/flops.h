// Work of an op by formula, from its name and the shapes of its tensors: for devices that are not
// here. Pure data.

#pragma once

#include <cstdint>

#include "autodist/ir/graph.h"

namespace autodist::capture {

// Sets flops and bytes_moved of every op, each affine in the batch; 0 where a figure is not.
//
// Of flops, a multiply and an add count as two: matrix products and convolutions exactly,
// normalisation, softmax and elementwise ops by operations per element; 0 where there is no
// formula. Bytes are those that the op must read and write, its tensors once each; 0 for a view.
void count_work(ir::Graph& graph);

// Sets the graph's peak_bytes: a line through those at the batches B and 2 B of the example.
void count_peak_bytes(ir::Graph& graph);

}  // namespace autodist::capture
