// What libtorch's ops do, by their names: the one table of it. Capture goes by it, and so do the
// simulator's times and memory.

#pragma once

#include <string>

#include "autodist/ir/graph.h"

namespace autodist::ir {

bool is_convolution(const Op& op);
// Of matrices, or attention as one op.
bool is_product(const Op& op);
// What autocast computes in 16 bits, from 16-bit copies of what it reads in float32.
inline bool runs_on_matrix_units(const Op& op) { return is_convolution(op) || is_product(op); }
// What autocast computes in float32: softmax, losses, and norms but batch norm.
bool stays_in_float32(const Op& op);
bool is_batch_norm(const Op& op);

// Whether an op of this name makes a tensor whose contents nobody has written yet (aten::empty and
// its like): it takes memory, and moves no bytes.
bool leaves_uninitialised(const std::string& name);
// Whether all that the op makes shares memory with what it reads, and it writes nothing.
bool is_view(const Graph& graph, const Op& op);

}  // namespace autodist::ir
