// Splitting a range in parts that differ by one at most.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace autodist {

// Part `index` of `total` in `count` parts: the first total % count parts get one more. [begin,
// end)
inline std::pair<std::int64_t, std::int64_t> even_part(std::int64_t total, std::int64_t index,
                                                       std::int64_t count) {
  const std::int64_t share = total / count;
  const std::int64_t larger = total % count;
  const auto begin_of = [&](std::int64_t i) { return i * share + std::min(i, larger); };
  return {begin_of(index), begin_of(index + 1)};
}

// Of ranges [begin, end) that follow each other: one row alone gets the rows behind it, or, where
// there are none, goes to the range before it. What has lost its rows, and what had none, is empty.
inline void join_single_rows(std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  const auto is_single = [](const auto* range) {
    return range != nullptr && range->second - range->first == 1;
  };
  std::pair<std::int64_t, std::int64_t>* last = nullptr;  // that has rows
  std::pair<std::int64_t, std::int64_t>* before = nullptr;
  for (auto& range : ranges) {
    if (range.first == range.second) continue;
    if (is_single(last)) {
      last->second = range.second;
      range.first = range.second;
    } else {
      before = std::exchange(last, &range);
    }
  }
  if (!is_single(last) || before == nullptr) return;
  before->second = last->second;
  last->first = last->second;
}

}  // namespace autodist
