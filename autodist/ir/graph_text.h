// The readable form of a graph (docs/formats/graph.md): for people and for diffs. The machine's
// form is graph_file.h.

#pragma once

#include <string>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// Header, named tensors, then one line per op in order:
//   %12: f32[B, 64, 112, 112] = aten::convolution(%x, conv1.weight, …)  # 0 features.0 fwd 1.20 ms
// Times and FLOPs are those at the example batch. REQUIRES: verify(graph) holds.
std::string to_text(const Graph& graph);

}  // namespace autodist::ir
