// Gradients that are products of two matrices: of a linear layer's weight, what came in by what
// came back. With few samples the two are smaller than their product.

#pragma once

#include <cstdint>
#include <optional>

#include "autodist/base/units.h"
#include "autodist/ir/graph.h"

namespace autodist::ir {

struct Factors {
  OpId product;  // left [m, k] x right [k, n] = gradient [m, n]
  ValueId left;
  ValueId right;
  Affine inner;  // k: rows of the batch, as a rule

  friend bool operator==(const Factors&, const Factors&);
};

// Nothing where another op than aten::mm makes the gradient: a convolution, a sum over several
// uses.
std::optional<Factors> factors_of(const Graph& graph, VariableId variable);

// Elements of both factors for `batch` samples.
std::int64_t element_count(const Graph& graph, const Factors& factors, std::int64_t batch);

Bytes bytes_of(const Graph& graph, const Factors& factors, std::int64_t batch);

// Whether both factors of a batch, which each of `members` sends to all others, are less than what
// it sends of the gradient in a direct all-reduce, 2(n-1)/n of it. False where there are no
// factors.
bool factors_pay(const Graph& graph, VariableId variable, std::int64_t members, std::int64_t batch);

}  // namespace autodist::ir
