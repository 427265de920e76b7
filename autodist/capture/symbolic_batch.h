// Two recordings of one step, at two batch sizes, become one graph whose integers are affine in the
// batch. Pure data: knows no libtorch.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "autodist/ir/graph.h"

namespace autodist::capture {

// a * B + c through (batch_a, a) and (batch_b, b); nothing where no such integers exist.
std::optional<ir::Affine> fit(std::int64_t batch_a, std::int64_t a, std::int64_t batch_b,
                              std::int64_t b);

// numerator / denominator that gives both doubles to the bit: integers that are affine in the
// batch, or k / integer for a small k; nothing where none is found.
std::optional<ir::Quotient> fit(std::int64_t batch_a, double a, std::int64_t batch_b, double b);

struct Unified {
  ir::Graph graph;         // of value only where `difference` is empty
  std::string difference;  // the first thing that no affine number explains: op, module, both sides
};

// The recordings' batch sizes are their example_batch; `first`'s becomes that of the result. With
// equal sizes every number must be equal: what differs then is data that the step baked in.
Unified unify(const ir::Graph& first, const ir::Graph& second);

}  // namespace autodist::capture
