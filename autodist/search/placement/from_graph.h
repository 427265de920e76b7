// Our own captured steps as task graphs.

#pragma once

#include <cstdint>

#include "autodist/ir/graph.h"
#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// One task per op, times in µs at `batch` samples, outputs with the bytes of their values. Ops that
// touch a variable, a buffer, or a storage that some op writes after its creation have one colour:
// in-place updates and views of parameters do not cross devices, nor do sparse tensors and what
// as_strided views. The first task of a colour carries the bytes of its variables with their
// gradients, and of its buffers. An op without a measured time costs what its FLOPs and bytes take
// on a device of 1 TFLOP/s and 100 GB/s.
TaskGraph task_graph_of(const ir::Graph& graph, std::int64_t batch);

}  // namespace autodist::search::placement
