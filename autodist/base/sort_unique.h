// Values in ascending order, each once.

#pragma once

#include <algorithm>
#include <vector>

namespace autodist {

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace autodist
