// Which slices a rank asks their owners for.

#pragma once

#include <algorithm>

#include "autodist/program/loads.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// Whose rows a step fetches, and that have versions.
inline bool fetched_in_step(const program::Slice& slice) {
  return !keeps_whole_copies(slice.exchange) && !updates_on_arrival(slice.exchange);
}

// Whose newest version the owner alone has: it applies each contribution as it comes.
inline bool updated_on_arrival(const program::Slice& slice) {
  return updates_on_arrival(slice.exchange);
}

// Of a placed graph: what another stage than this rank's has. Accepts slices.
inline auto elsewhere_than(program::Rank rank) {
  return [rank](const program::Slice& slice) {
    return !std::binary_search(slice.members.begin(), slice.members.end(), rank);
  };
}

}  // namespace autodist::exec
