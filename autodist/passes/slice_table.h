// The slice table while passes still move its rows.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::passes {

// Cuts [begin, end) into the fewest ranges of at most `limit`, as even as possible: sizes differ by
// at most one and there is no small rest. An empty range stays one. REQUIRES: limit >= 1.
std::vector<program::Piece> cut(const program::Piece& whole, std::int64_t limit);

// Sorts stably. `key` is asked once per slice, and every slice moves once: slices are large beside
// what they are sorted by.
template <typename KeyOf>
void sort_slices(std::vector<program::Slice>& slices, const KeyOf& key) {
  using Key = std::invoke_result_t<const KeyOf&, const program::Slice&>;
  std::vector<std::pair<Key, std::size_t>> order;  // and its place, so that equal ones stay
  order.reserve(slices.size());
  for (const program::Slice& slice : slices) order.emplace_back(key(slice), order.size());
  std::sort(order.begin(), order.end());
  std::vector<program::Slice> sorted;
  sorted.reserve(slices.size());
  for (const auto& [unused, place] : order) sorted.push_back(std::move(slices[place]));
  slices = std::move(sorted);
}

// Lets every variable's plan name the slices that hold it, ascending, and no others.
void name_slices(program::Program& program);

}  // namespace autodist::passes
