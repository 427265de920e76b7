// Measured times of ops. Private to capture.

#pragma once

#include "autodist/capture/subject.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

// Sets op.cost of every op: medians of `repetitions` replays at the example's batch and at about
// half of it, through which fixed + per_sample * B is laid, neither below zero. Of a batch-fixed
// graph only its own batch is measured, and everything is fixed.
void measure_costs(ir::Graph& graph, const Subject& subject, const Bindings& tensors,
                   int repetitions);

}  // namespace autodist::capture
