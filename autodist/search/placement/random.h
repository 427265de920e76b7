// Draws that give the same numbers with every standard library (std::shuffle and the distributions
// are not specified to the bit).

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace autodist::search::placement {

// Uniform in [0, bound). REQUIRES: 0 < bound < 2^32. (Lemire's multiplication; the bias of 2^-32 is
// nothing to a search.)
inline std::uint32_t below(std::size_t bound, std::mt19937_64& random) {
  return static_cast<std::uint32_t>(((random() >> 32) * bound) >> 32);
}

// Uniform in [0, 1).
inline double fraction(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1.0p-53;
}

template <typename T>
void shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[below(left, random)]);
  }
}

}  // namespace autodist::search::placement
