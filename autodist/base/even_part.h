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

// Of ranges [begin, end) that follow each other: one row alone goes to the range before it, the
// first row to the one behind it. What lost its row, and what had none, is empty.
inline void join_single_rows(std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  std::pair<std::int64_t, std::int64_t>* before = nullptr;  // the last that has rows
  for (auto& range : ranges) {
    const std::int64_t rows = range.second - range.first;
    if (rows == 0) continue;
    if (before != nullptr && (rows == 1 || before->second - before->first == 1)) {
      before->second = range.second;
      range.first = range.second;
    } else {
      before = &range;
    }
  }
}

}  // namespace autodist
