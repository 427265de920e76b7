// The sum of contributions: one pass over all of them, in rank order, so that the bits do not
// depend on who came first or where the owner sits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "autodist/base/dtype.h"

namespace autodist::exec {

// `data` holds the elements; each counts `weight` times.
struct Term {
  const std::byte* data = nullptr;
  double weight = 1;
};

// out[i] = sum over terms, in their order, of weight * data[i]. The accumulator has the elements'
// type; f16 and bf16 are added as f32 and rounded once. No terms: zeros. `out` may be the data of
// the first term. REQUIRES: a floating dtype; every pointer aligned for it.
void weighted_sum(const std::vector<Term>& terms, DType dtype, std::int64_t count, std::byte* out);

// data[i] *= factor.
void scale(double factor, DType dtype, std::int64_t count, std::byte* data);

// Sums of squares over the elements of one variable, or of a piece of it. Pieces' are added in a
// fixed order, since the last bits depend on it.
struct SquaredSums {
  double first = 0;   // of the gradient; LAMB: of the parameters
  double second = 0;  // LAMB: of the update

  SquaredSums& operator+=(const SquaredSums& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
  friend bool operator==(const SquaredSums& a, const SquaredSums& b) {
    return a.first == b.first && a.second == b.second;
  }
};

// Sum of data[i]^2 in double, in a fixed order that depends on `count` alone.
double sum_of_squares(const std::byte* data, DType dtype, std::int64_t count);

}  // namespace autodist::exec
