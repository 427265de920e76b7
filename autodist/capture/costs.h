// What ops take, measured. Private to capture.

#pragma once

#include "autodist/capture/subject.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

// Sets op.cost of every op: median times of `repetitions` replays at about a quarter of the
// example's batch and of one fewer at the whole, and what kernels allocated in the first of each.
// Through these a line in the batch is laid, neither its start nor its slope below zero. Of a
// batch-fixed graph, and where sizes follow from data, only its own batch is measured, and
// everything is fixed. `seed`: of the example's recording, which has the sizes of the graph.
void measure_costs(ir::Graph& graph, const Subject& subject, const Bindings& tensors,
                   int repetitions, std::uint64_t seed);

}  // namespace autodist::capture
