// A replay has come to a guard that does not hold.

#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <variant>

#include "autodist/ir/graph.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {

// Thrown by a guard (ir::is_guard()): the tensor holds another Boolean than the host had read at
// the capture, another integer, or another number of elements.
struct OtherWay : std::runtime_error {
  OtherWay(std::size_t guard, std::variant<bool, std::int64_t> found);
  std::size_t guard;  // of the graph's, from 0
  std::variant<bool, std::int64_t> found;
};

// The way as far as it is known by then, of a graph that runs with so many samples.
ir::Way way_of(const ir::Graph& graph, std::int64_t batch, const OtherWay& other);

}  // namespace autodist::capture
