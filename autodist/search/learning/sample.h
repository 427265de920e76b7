// Measured plans as rankers see them, and how well an order fits what was measured.

#pragma once

#include <cstddef>
#include <vector>

#include "autodist/search/learning/features.h"

namespace autodist::search {

// One measured plan. Only plans of one `cell` (a model on a cluster) are compared.
struct Sample {
  std::size_t cell = 0;
  std::size_t point = 0;  // its place among the cell's points, those that are passed over too
  double measured = 0;    // seconds
  double analytic = 0;    // AutoSync's score: seconds of the busiest server or group
  double simulated = 0;   // seconds; 0: it cannot be simulated
  PaperFeatures paper = {};
  std::vector<double> features;  // plan_features(); empty where it cannot be simulated
};

// Pairs whose measured times differ by less are equal: no order of them is wrong.
constexpr double kAlike = 0.03;

// Two plans of one cell that are not alike, by their places among the samples.
struct Pair {
  std::size_t slow = 0;
  std::size_t fast = 0;
};
std::vector<Pair> pairs_of(const std::vector<Sample>& samples);

struct Accuracy {
  std::size_t right = 0;
  std::size_t pairs = 0;

  [[nodiscard]] double share() const {
    return pairs > 0 ? static_cast<double>(right) / static_cast<double>(pairs) : 0;
  }
};

// Of all pairs of one cell that are not alike, how many `scores` (parallel, the lower the faster)
// put in the measured order. Equal scores are half right, and counted as wrong in every other pair.
Accuracy pairwise_accuracy(const std::vector<Sample>& samples, const std::vector<double>& scores);

}  // namespace autodist::search
