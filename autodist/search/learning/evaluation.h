// How well rankers order plans that they were not trained on: the comparison of AutoSync's figures
// 5 and 6 (Zhang et al., NeurIPS 2020), on any data set.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/search/learning/sample.h"

namespace autodist::search {

// Whose measured plans a ranker knows before the trials on the cell in question.
enum class Known : std::uint8_t {
  kNothing,        // cold
  kOtherModels,    // all cells of other models
  kOtherClusters,  // all cells on other clusters
  kBothOther       // all cells of other models on other clusters
};
std::string name_of(Known known);

struct RankerResult {
  std::string ranker;  // "AutoSync's linear", "AutoSync's score", "simulator", "with residual"
  Accuracy accuracy;   // on the cell's other plans
  // Mean over cells of how much slower than the fastest plan the pick is: the fastest measured one
  // of the plans that the ranker puts first before any trial, as many as there are trials (at least
  // one).
  double regret = 0;
};

struct EvaluationRow {
  Known known = Known::kNothing;
  std::size_t trials = 0;  // plans of the cell, drawn at random, that it is trained on as well
  std::size_t cells = 0;   // that have that many plans and ten more
  std::vector<RankerResult> rankers;
};

// `models` and `clusters` name those of every cell. Rows of 0, 20, 50, 100 and 200 trials, as far
// as some cell has so many plans and, but for kNothing, others to learn from. Every cell is
// evaluated with `draws` draws of trials. Samples that cannot be simulated are passed over.
// Deterministic.
std::vector<EvaluationRow> evaluate(const std::vector<Sample>& samples,
                                    const std::vector<std::string>& models,
                                    const std::vector<std::string>& clusters, std::uint64_t seed,
                                    std::uint32_t draws = 3);

}  // namespace autodist::search
