// The ops of a graph that libtorch has not; capture/op_call.cc has what they do.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// Stands for a Boolean which the host reads of a tensor, of no gradient (an `if` on data): (the
// tensor, what the host read at the capture, how many it had read before). It has no results. Where
// a replay finds another value, the step goes another way, which is another graph.
inline constexpr char kGuardOp[] = "autodist::guard";

// The same for an integer (a slice up to the longest length); and, behind an op of the forward pass
// whose result has one size that follows from data (nonzero), for the sum of the result's sizes,
// which says what that size is.
inline constexpr char kIntegerGuardOp[] = "autodist::integer_guard";
inline constexpr char kSizeGuardOp[] = "autodist::size_guard";

[[nodiscard]] inline bool is_number_guard(const Op& op) {
  return op.name == kIntegerGuardOp || op.name == kSizeGuardOp;
}
[[nodiscard]] inline bool is_guard(const Op& op) {
  return op.name == kGuardOp || is_number_guard(op);
}

// What is known of data, by guards in their order: Booleans that the host reads, and integers:
// those that it reads, and the sizes that follow from data.
struct Way {
  std::vector<bool> booleans;
  std::vector<std::int64_t> numbers;

  friend bool operator==(const Way& a, const Way& b) {
    return a.booleans == b.booleans && a.numbers == b.numbers;
  }
};

// The way of the graph with so many samples, as far as the first `guards` guards know it. REQUIRES:
// verify() holds.
Way way_of(const Graph& graph, std::int64_t batch,
           std::size_t guards = std::numeric_limits<std::size_t>::max());
std::vector<bool> booleans_of(const Graph& graph);

[[nodiscard]] bool begins_with(const Way& way, const Way& first);

[[nodiscard]] bool has_number_guards(const Graph& graph);

// Around an op that draws the same random numbers as an earlier one, as a dropout does that the
// backward pass computes again: (device, generator) to the generator's state, and (device,
// generator, state) to the state that it had before. Both are random, and so keep their places
// among what draws.
inline constexpr char kKeepGeneratorOp[] = "autodist::generator_state";
inline constexpr char kSetGeneratorOp[] = "autodist::set_generator_state";

}  // namespace autodist::ir
