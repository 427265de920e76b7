// Does the graph do what the step does? Private to capture.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/capture/subject.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

struct CheckRun {
  std::int64_t start = 0;  // rows of the example
  std::int64_t count = 1;
  std::uint64_t seed = 0;
  // For another Boolean or number than the graph's. Else the step is told its Booleans, and another
  // number is a difference.
  bool throws_other_way = false;
};

// Runs the step plainly and then the graph, on the same rows, from the same buffers and seed, and
// compares outputs, gradients and buffers bit for bit, and every result's shape with the graph's.
// Returns the first difference in words; empty: none. One of the two is in memory at a time. On a
// device on which two runs of the step differ, the replay may differ as such runs do; they are
// compared side by side there. Throws OtherWay where the run asks for it.
std::string self_check(const Subject& subject, const ir::Graph& graph, const Bindings& tensors,
                       const CheckRun& run);

}  // namespace autodist::capture
