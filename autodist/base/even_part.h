// Splitting a range in parts that differ by one at most.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

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

}  // namespace autodist
