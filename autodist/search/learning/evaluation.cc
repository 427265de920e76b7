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

Scores scores_of(const LinearRanker& linear, const Residual& residual, const Samples& samples) {
  Scores scores(4);
  for (const Sample& sample : samples) {
    scores[0].push_back(linear.score(sample.paper));
    scores[1].push_back(sample.analytic);
    scores[2].push_back(sample.simulated);
    scores[3].push_back(residual.correct(sample.features, Seconds(sample.simulated)).value);
  }
  return scores;
}

Scores trained(const Samples& training, const Samples& asked) {
  return scores_of(LinearRanker::fit(training), Residual::fit(training), asked);
}

// Of the first `count` by score the fastest one, against the fastest of all.
double regret_after(const Samples& samples, const std::vector<double>& scores, std::size_t count) {
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double picked = samples[order.front()].measured;
  double best = picked;
  for (std::size_t i = 0; i < order.size(); ++i) {
    best = std::min(best, samples[order[i]].measured);
    if (i < count) picked = std::min(picked, samples[order[i]].measured);
  }
  return picked / best - 1;
}

class Evaluation {
 public:
  Evaluation(const Samples& samples, const std::vector<std::string>& models,
             const std::vector<std::string>& clusters, std::uint64_t seed, std::uint32_t draws)
      : models_(models), clusters_(clusters), seed_(seed), draws_(draws), by_cell_(models.size()) {
    for (const Sample& sample : samples) {
      if (sample.simulated > 0) by_cell_[sample.cell].push_back(sample);
    }
  }

  [[nodiscard]] EvaluationRow row(Known known, std::size_t trials) const {
    EvaluationRow row{known, trials, 0, {}};
    for (const char* name :
         {"AutoSync's linear", "AutoSync's score", "simulator", "with residual"}) {
      row.rankers.push_back({name, {}, 0});
    }
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

  void add(std::size_t cell, const Samples& others, EvaluationRow& row) const {
    const Samples& own = by_cell_[cell];
    const Scores before = trained(others, own);
    for (std::size_t r = 0; r < row.rankers.size(); ++r) {
      row.rankers[r].regret += regret_after(own, before[r], std::max<std::size_t>(1, row.trials));
    }
    for (std::uint32_t draw_number = 0; draw_number < draws_; ++draw_number) {
      if (row.trials == 0 && draw_number > 0) break;
      std::mt19937_64 random(seed_ + 1000 * cell + draw_number);
      Samples shuffled = own;
      for (std::size_t i = shuffled.size(); i > 1; --i) {
        std::swap(shuffled[i - 1], shuffled[draw(random, i)]);
      }
      const auto middle = shuffled.begin() + static_cast<std::ptrdiff_t>(row.trials);
      Samples training = others;
      training.insert(training.end(), shuffled.begin(), middle);
      const Samples tested(middle, shuffled.end());
      const Scores scores = row.trials == 0 ? trained(others, tested) : trained(training, tested);
      for (std::size_t r = 0; r < row.rankers.size(); ++r) {
        const Accuracy more = pairwise_accuracy(tested, scores[r]);
        row.rankers[r].accuracy.right += more.right;
        row.rankers[r].accuracy.pairs += more.pairs;
      }
    }
  }

  const std::vector<std::string>& models_;
  const std::vector<std::string>& clusters_;
  std::uint64_t seed_;
  std::uint32_t draws_;
  std::vector<Samples> by_cell_;
};

}  // namespace

std::string name_of(Known known) {
  switch (known) {
    case Known::kNothing:
      return "nothing";
    case Known::kOtherModels:
      return "other models";
    case Known::kOtherClusters:
      return "other clusters";
    case Known::kBothOther:
      return "other models on other clusters";
  }
  return "";
}

std::vector<EvaluationRow> evaluate(const std::vector<Sample>& samples,
                                    const std::vector<std::string>& models,
                                    const std::vector<std::string>& clusters, std::uint64_t seed,
                                    std::uint32_t draws) {
  const Evaluation evaluation(samples, models, clusters, seed, draws);
  std::vector<EvaluationRow> rows;
  for (const Known known :
       {Known::kNothing, Known::kOtherModels, Known::kOtherClusters, Known::kBothOther}) {
    for (const std::size_t trials : {0, 20, 50, 100, 200}) {
      EvaluationRow row = evaluation.row(known, trials);
      if (row.cells > 0) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace autodist::search
