#include "autodist/search/learning/sample.h"

#include <algorithm>
#include <cmath>

namespace autodist::search {

std::vector<Pair> pairs_of(const std::vector<Sample>& samples) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t j = 0; j < samples.size(); ++j) {
      if (samples[i].cell != samples[j].cell) continue;
      if (samples[i].measured > (1 + kAlike) * samples[j].measured) pairs.push_back({i, j});
    }
  }
  return pairs;
}

Accuracy pairwise_accuracy(const std::vector<Sample>& samples, const std::vector<double>& scores) {
  Accuracy accuracy;
  std::size_t ties = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t j = i + 1; j < samples.size(); ++j) {
      if (samples[i].cell != samples[j].cell) continue;
      const double a = samples[i].measured;
      const double b = samples[j].measured;
      if (std::abs(a - b) <= kAlike * std::min(a, b)) continue;
      ++accuracy.pairs;
      if (scores[i] == scores[j]) {
        accuracy.right += ++ties % 2;
      } else {
        accuracy.right += (a < b) == (scores[i] < scores[j]) ? 1 : 0;
      }
    }
  }
  return accuracy;
}

}  // namespace autodist::search
