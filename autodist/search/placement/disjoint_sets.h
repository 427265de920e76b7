// Numbers in sets that are joined (union-find).

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace autodist::search::placement {

class DisjointSets {
 public:
  // 0 to count - 1, each by itself.
  explicit DisjointSets(std::size_t count) : above_(count) {
    std::iota(above_.begin(), above_.end(), 0u);
  }
  // The least of its set.
  std::uint32_t find(std::uint32_t i) {
    while (above_[i] != i) i = above_[i] = above_[above_[i]];
    return i;
  }
  // False where they are in one set already.
  bool join(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    above_[std::max(a, b)] = std::min(a, b);
    return true;
  }

 private:
  std::vector<std::uint32_t> above_;
};

}  // namespace autodist::search::placement
