// AutoSync's baseline: a linear score of its twelve features, fitted to the order of pairs (Zhang
// et al., NeurIPS 2020, section 4.2).

#pragma once

#include <vector>

#include "autodist/search/learning/sample.h"

namespace autodist::search {

class LinearRanker {
 public:
  // Pairwise logistic loss over all pairs of a cell that are not alike, with a small penalty on
  // weights of standardised features. Deterministic. Without samples every score is 0.
  static LinearRanker fit(const std::vector<Sample>& samples);

  // The lower the faster.
  [[nodiscard]] double score(const PaperFeatures& features) const;

 private:
  PaperFeatures mean_{};
  PaperFeatures scale_{};
  PaperFeatures weights_{};
};

}  // namespace autodist::search
