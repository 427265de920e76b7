// How well rankers order plans that they were not trained on: the comparison of AutoSync's figures
// 5 and 6 (Zhang et al., NeurIPS 2020), on any data set.

#pragma once

#include <cstdint>
#include <functional>
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

// Trained on `training`, it gives one score per sample of `asked`, in that order; the lower the
// faster. Deterministic.
struct Ranker {
  std::string name;
  std::function<std::vector<double>(const std::vector<Sample>& training,
                                    const std::vector<Sample>& asked)>
      scores;
};

// AutoSync's linear one and its score, the simulator, the simulator with the residual; and, as
// controls, one score for all plans and scores drawn at random.
std::vector<Ranker> shipped_rankers();

struct RankerResult {
  std::string ranker;
  Accuracy accuracy;  // on the cell's other plans
  // Mean over cells of how much slower than the fastest plan the pick is: the fastest measured one
  // of the plans that the ranker puts first before any trial, as many as there are trials (at least
  // one). Plans of one score come in any order: the mean over many.
  double regret = 0;
};

struct EvaluationRow {
  Known known = Known::kNothing;
  std::size_t trials = 0;  // plans of the cell, drawn at random, that it is trained on as well
  std::size_t cells = 0;   // that have that many plans and ten more
  std::vector<RankerResult> rankers;
};

struct Splits {
  std::vector<Known> known = {Known::kNothing, Known::kOtherModels, Known::kOtherClusters,
                              Known::kBothOther};
  std::vector<std::size_t> trials = {0, 20, 50, 100, 200};
  std::uint32_t draws = 3;  // of trials, per cell
  std::uint64_t seed = 0;   // of the draws
};

// `models` and `clusters` name those of every cell. A row per split, as far as some cell has so
// many plans and, but for kNothing, others to learn from. Samples that cannot be simulated are
// passed over. Deterministic.
std::vector<EvaluationRow> evaluate(const std::vector<Sample>& samples,
                                    const std::vector<std::string>& models,
                                    const std::vector<std::string>& clusters,
                                    const std::vector<Ranker>& rankers = shipped_rankers(),
                                    const Splits& splits = {});

}  // namespace autodist::search
