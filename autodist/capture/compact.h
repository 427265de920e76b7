// Numbers storages, values, slots and scopes of a graph by first appearance and leaves out those
// that nothing names, and generator states that nothing reads, so that two recordings of one step
// are equal. Pure data.

#pragma once

#include "autodist/ir/graph.h"

namespace autodist::capture {

void compact(ir::Graph& graph);

}  // namespace autodist::capture
