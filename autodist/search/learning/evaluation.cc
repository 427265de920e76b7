#include "autodist/search/learning/evaluation.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "autodist/search/autosync/moves.h"
#include "autodist/search/learning/linear_ranker.h"
#include "autodist/search/learning/residual.h"

namespace autodist::search {
namespace {

constexpr std::size_t kLeastTested = 10;

using Samples = std::vector<Sample>;
using Scores = std::vector<std::vector<double>>;  // by ranker, then by sample

template <typename Each>
void shuffle(std::vector<Each>& list, std::mt19937_64& random) {
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[draw(random, i)]);
}

template <typename Score>
std::vector<double> each_scored(const Samples& samples, Score score) {
  std::vector<double> scores;
  for (const Sample& sample : samples) scores.push_back(score(sample));
  return scores;
}

// One that needs no training.
template <typename Score>
Ranker untrained(const std::string& name, Score score) {
  return {name, [=](const Samples&, const Samples& asked) { return each_scored(asked, score); }};
}

// Of the first `count` by score the fastest one, against the fastest of all: the mean over orders
// of plans with one score.
double regret_after(const Samples& samples, const std::vector<double>& scores, std::size_t count,
                    std::uint64_t seed) {
  constexpr int kOrders = 64;
  std::mt19937_64 random(seed);
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  double best = samples.front().measured;
  for (const Sample& sample : samples) best = std::min(best, sample.measured);
  double sum = 0;
  for (int drawn = 0; drawn < kOrders; ++drawn) {
    shuffle(order, random);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
    double picked = samples[order.front()].measured;
    for (std::size_t i = 0; i < std::min(count, order.size()); ++i) {
      picked = std::min(picked, samples[order[i]].measured);
    }
    sum += picked / best - 1;
  }
  return sum / kOrders;
}

class Evaluation {
 public:
  Evaluation(const Samples& samples, const std::vector<std::string>& models,
             const std::vector<std::string>& clusters, const std::vector<Ranker>& rankers,
             const Splits& splits)
      : models_(models),
        clusters_(clusters),
        rankers_(rankers),
        splits_(splits),
        by_cell_(models.size()) {
    for (const Sample& sample : samples) {
      if (sample.simulated > 0) by_cell_[sample.cell].push_back(sample);
    }
  }

  [[nodiscard]] EvaluationRow row(Known known, std::size_t trials) const {
    EvaluationRow row{known, trials, 0, {}};
    for (const Ranker& ranker : rankers_) row.rankers.push_back({ranker.name, {}, 0});
    for (std::size_t cell = 0; cell < by_cell_.size(); ++cell) {
      const Samples others = known_of(known, cell);
      const bool too_few = by_cell_[cell].size() < trials + kLeastTested;
      if (too_few || (known != Known::kNothing && others.empty())) continue;
      ++row.cells;
      add(cell, others, row);
    }
    for (RankerResult& each : row.rankers) {
      each.regret /= static_cast<double>(std::max<std::size_t>(1, row.cells));
    }
    return row;
  }

 private:
  [[nodiscard]] Samples known_of(Known known, std::size_t cell) const {
    Samples samples;
    for (std::size_t other = 0; other < by_cell_.size() && known != Known::kNothing; ++other) {
      const bool same_model = models_[other] == models_[cell];
      const bool same_cluster = clusters_[other] == clusters_[cell];
      if (known != Known::kOtherClusters && same_model) continue;
      if (known != Known::kOtherModels && same_cluster) continue;
      samples.insert(samples.end(), by_cell_[other].begin(), by_cell_[other].end());
    }
    return samples;
  }

  [[nodiscard]] Scores scores_of(const Samples& training, const Samples& asked) const {
    Scores scores;
    for (const Ranker& ranker : rankers_) scores.push_back(ranker.scores(training, asked));
    return scores;
  }

  void add(std::size_t cell, const Samples& others, EvaluationRow& row) const {
    const Samples& own = by_cell_[cell];
    const Scores before = scores_of(others, own);
    for (std::size_t r = 0; r < row.rankers.size(); ++r) {
      row.rankers[r].regret += regret_after(own, before[r], std::max<std::size_t>(1, row.trials),
                                            splits_.seed + 1000 * cell);
    }
    if (row.trials == 0) return add_accuracy(own, before, row);
    for (std::uint32_t draw_number = 0; draw_number < splits_.draws; ++draw_number) {
      std::mt19937_64 random(splits_.seed + 1000 * cell + draw_number);
      Samples shuffled = own;
      shuffle(shuffled, random);
      const auto middle = shuffled.begin() + static_cast<std::ptrdiff_t>(row.trials);
      Samples training = others;
      training.insert(training.end(), shuffled.begin(), middle);
      const Samples tested(middle, shuffled.end());
      add_accuracy(tested, scores_of(training, tested), row);
    }
  }

  static void add_accuracy(const Samples& tested, const Scores& scores, EvaluationRow& row) {
    for (std::size_t r = 0; r < row.rankers.size(); ++r) {
      const Accuracy more = pairwise_accuracy(tested, scores[r]);
      row.rankers[r].accuracy.right += more.right;
      row.rankers[r].accuracy.pairs += more.pairs;
    }
  }

  const std::vector<std::string>& models_;
  const std::vector<std::string>& clusters_;
  const std::vector<Ranker>& rankers_;
  const Splits& splits_;
  std::vector<Samples> by_cell_;
};

}  // namespace

std::string name_of(Known known) {
  constexpr const char* kNames[] = {"nothing", "other models", "other clusters",
                                    "other models on other clusters"};
  return kNames[static_cast<std::size_t>(known)];
}

std::vector<Ranker> shipped_rankers() {
  return {
      {"AutoSync's linear",
       [](const Samples& training, const Samples& asked) {
         const LinearRanker linear = LinearRanker::fit(training);
         return each_scored(asked, [&](const Sample& each) { return linear.score(each.paper); });
       }},
      untrained("AutoSync's score", [](const Sample& each) { return each.analytic; }),
      untrained("simulator", [](const Sample& each) { return each.simulated; }),
      {"with residual",
       [](const Samples& training, const Samples& asked) {
         const Residual residual = Residual::fit(training);
         return each_scored(asked, [&](const Sample& each) {
           return residual.correct(each.features, Seconds(each.simulated)).value;
         });
       }},
      untrained("constant", [](const Sample&) { return 0.0; }),
      {"random",
       [](const Samples& training, const Samples& asked) {
         return each_scored(asked, [&](const Sample& each) {
           std::seed_seq seeds{training.size(), asked.size(), each.cell, each.point};
           std::mt19937_64 random(seeds);
           return static_cast<double>(draw(random, std::uint64_t{1} << 32U));
         });
       }},
  };
}

std::vector<EvaluationRow> evaluate(const std::vector<Sample>& samples,
                                    const std::vector<std::string>& models,
                                    const std::vector<std::string>& clusters,
                                    const std::vector<Ranker>& rankers, const Splits& splits) {
  const Evaluation evaluation(samples, models, clusters, rankers, splits);
  std::vector<EvaluationRow> rows;
  for (const Known known : splits.known) {
    for (const std::size_t trials : splits.trials) {
      EvaluationRow row = evaluation.row(known, trials);
      if (row.cells > 0) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace autodist::search
