// Medians and quantiles of a few values.

#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace autodist {

// Of an even number of values the upper one in the middle. REQUIRES: there are some.
template <typename T>
T median_of(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The value below which a share of the others lie; 0 of none.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

}  // namespace autodist
