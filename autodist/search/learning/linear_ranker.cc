#include "autodist/search/learning/linear_ranker.h"

#include <algorithm>
#include <cmath>

namespace autodist::search {
namespace {

constexpr int kSteps = 300;
constexpr double kRate = 0.5;
constexpr double kPenalty = 1e-3;

}  // namespace

LinearRanker LinearRanker::fit(const std::vector<Sample>& samples) {
  LinearRanker ranker;
  const auto count = static_cast<double>(std::max<std::size_t>(1, samples.size()));
  for (std::size_t f = 0; f < kPaperFeatures; ++f) {
    double square = 0;
    for (const Sample& sample : samples) ranker.mean_[f] += sample.paper[f] / count;
    for (const Sample& sample : samples) {
      square += (sample.paper[f] - ranker.mean_[f]) * (sample.paper[f] - ranker.mean_[f]) / count;
    }
    ranker.scale_[f] = square > 0 ? 1 / std::sqrt(square) : 0;
  }
  const std::vector<Pair> pairs = pairs_of(samples);
  if (pairs.empty()) return ranker;
  std::vector<PaperFeatures> standard;
  for (const Sample& sample : samples) {
    PaperFeatures x{};
    for (std::size_t f = 0; f < kPaperFeatures; ++f) {
      x[f] = (sample.paper[f] - ranker.mean_[f]) * ranker.scale_[f];
    }
    standard.push_back(x);
  }
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> scores;
    for (const Sample& sample : samples) scores.push_back(ranker.score(sample.paper));
    // Of every sample's score first: pairs are many, features are added up once per sample.
    std::vector<double> by_score(samples.size());
    for (const auto& [slow, fast] : pairs) {
      const double wrong = 1 / (1 + std::exp(scores[slow] - scores[fast]));
      by_score[slow] -= wrong;
      by_score[fast] += wrong;
    }
    PaperFeatures gradient{};
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::size_t f = 0; f < kPaperFeatures; ++f) {
        gradient[f] += by_score[i] * standard[i][f] / static_cast<double>(pairs.size());
      }
    }
    for (std::size_t f = 0; f < kPaperFeatures; ++f) {
      ranker.weights_[f] -= kRate * (gradient[f] + kPenalty * ranker.weights_[f]);
    }
  }
  return ranker;
}

double LinearRanker::score(const PaperFeatures& features) const {
  double score = 0;
  for (std::size_t f = 0; f < kPaperFeatures; ++f) {
    score += weights_[f] * (features[f] - mean_[f]) * scale_[f];
  }
  return score;
}

}  // namespace autodist::search
