#include "tools/rank_rnn/rank_rnn.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "tools/rank_rnn/plan_sequence.h"

namespace autodist::learned {
namespace {

struct Drawn {
  Sequences sequences;
  std::vector<search::Sample> samples;
};

// Plans of 2 to 6 variables. What a variable costs is the product of two of its numbers, which no
// weighted sum of the plan's numbers has; a plan is as slow as its variables together.
Drawn drawn(std::size_t cells, std::size_t points, std::uint32_t seed) {
  std::mt19937 random(seed);
  Drawn drawn;
  for (std::size_t cell = 0; cell < cells; ++cell) {
    drawn.sequences.emplace_back();
    for (std::size_t point = 0; point < points; ++point) {
      search::Sample sample;
      sample.cell = cell;
      sample.point = point;
      std::vector<std::vector<float>> rows(2 + random() % 5, std::vector<float>(kStepFeatures));
      for (std::vector<float>& row : rows) {
        row[0] = static_cast<float>(random() % 1000) / 1000;
        row[1] = static_cast<float>(random() % 2);
        sample.measured += 0.1 + row[0] * row[1];
      }
      drawn.sequences.back().push_back(std::move(rows));
      drawn.samples.push_back(std::move(sample));
    }
  }
  return drawn;
}

TEST(RankRnn, OrdersPlansOfACellThatItHasNotSeen) {
  torch::set_num_threads(1);
  const Drawn of = drawn(4, 60, 1);
  const std::vector<search::Sample> known(of.samples.begin(), of.samples.begin() + 180);
  const std::vector<search::Sample> asked(of.samples.begin() + 180, of.samples.end());
  RankRnnOptions options;
  options.epochs = 80;
  const search::Ranker ranker = rank_rnn(of.sequences, options);
  const std::vector<double> scores = ranker.scores(known, asked);
  EXPECT_GT(search::pairwise_accuracy(asked, scores).share(), 0.9);
  EXPECT_EQ(ranker.scores(known, asked), scores) << "one seed, one ranker";
}

TEST(RankRnn, SaysNothingWithoutPairs) {
  const Drawn of = drawn(1, 20, 2);
  EXPECT_EQ(rank_rnn(of.sequences).scores({}, of.samples), std::vector<double>(20));
  EXPECT_EQ(rank_rnn(of.sequences).scores({of.samples.front()}, of.samples),
            std::vector<double>(20));
}

}  // namespace
}  // namespace autodist::learned
