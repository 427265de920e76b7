// Notes that belong to a slice have numbers in blocks of one per slice, from Topic::kStates on
// (docs/formats/wire.md).

#pragma once

#include <algorithm>
#include <cstddef>

#include "autodist/program/loads.h"
#include "autodist/program/program.h"

namespace autodist::exec {

inline constexpr std::size_t kStatesBlock = 0;       // of the update rules, to the chief
inline constexpr std::size_t kOwedBlock = 1;         // by compression at contributors, likewise
inline constexpr std::size_t kOwedAverageBlock = 2;  // and at owners
inline constexpr std::size_t kParametersBlock = 3;   // whole, from the owner
inline constexpr std::size_t kAskBlock = 4;          // numbers of rows, to the owner
inline constexpr std::size_t kRowsBlock = 5;         // those rows, from the owner
inline constexpr std::size_t kSliceBlocks = 6;       // behind them transfers, by number

// Whose rows a step fetches, and that have versions.
inline bool fetched_in_step(const program::Slice& slice) {
  return !keeps_whole_copies(slice.exchange) && lag_of(slice.exchange);
}

// Of a placed graph: what another stage than this rank's has. Accepts slices.
inline auto elsewhere_than(program::Rank rank) {
  return [rank](const program::Slice& slice) {
    return !std::binary_search(slice.members.begin(), slice.members.end(), rank);
  };
}

}  // namespace autodist::exec
