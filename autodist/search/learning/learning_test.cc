#include <gtest/gtest.h>

#include <random>

#include "autodist/base/error.h"
#include "autodist/search/autosync/moves.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/learning/evaluation.h"
#include "autodist/search/learning/linear_ranker.h"
#include "autodist/search/learning/propose.h"
#include "autodist/search/learning/residual.h"
#include "autodist/search/testing/small_problems.h"

namespace autodist::search {
namespace {

// Plans of `cells` cells whose true time is what a simulator says, times what their first feature
// says; the simulator sees neither that nor the cell's own factor.
std::vector<Sample> samples(std::size_t cells, std::size_t each, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Sample> all;
  for (std::size_t i = 0; i < cells * each; ++i) {
    Sample sample;
    sample.cell = i / each;
    sample.features.resize(feature_names().size());
    for (double& feature : sample.features) feature = draw_unit(random);
    sample.simulated = 0.01 * (1 + draw_unit(random));
    sample.measured = sample.simulated * (1 + (sample.features[0] > 0.5 ? 1.0 : 0.0)) *
                      (1 + static_cast<double>(sample.cell));
    sample.paper[0] = sample.measured;
    sample.paper[5] = draw_unit(random);
    sample.analytic = draw_unit(random);
    all.push_back(std::move(sample));
  }
  return all;
}

std::vector<double> corrected(const Residual& residual, const std::vector<Sample>& of) {
  std::vector<double> scores;
  for (const Sample& sample : of) {
    scores.push_back(residual.correct(sample.features, Seconds(sample.simulated)).value);
  }
  return scores;
}

std::vector<double> simulated(const std::vector<Sample>& of) {
  std::vector<double> scores;
  for (const Sample& sample : of) scores.push_back(sample.simulated);
  return scores;
}

TEST(Pairs, OnlyPlansOfOneCellWithUnlikeTimesMakeAPair) {
  std::vector<Sample> of(4);
  of[0].measured = 1;
  of[1].measured = 2;
  of[2].measured = 2.01;  // alike
  of[3].measured = 0.5;
  of[3].cell = 1;
  const Accuracy right = pairwise_accuracy(of, {1, 2, 3, 4});
  EXPECT_EQ(right.pairs, 2U);
  EXPECT_EQ(right.right, 2U);
  EXPECT_EQ(pairwise_accuracy(of, {3, 2, 1, 0}).right, 0U);
  EXPECT_EQ(pairwise_accuracy(of, {1, 1, 1, 1}).right, 1U) << "ties are half right";
}

TEST(Residual, LearnsWhatTheSimulatorDoesNotSeeAndCarriesItOver) {
  const std::vector<Sample> unseen = samples(2, 60, 7);
  const double before = pairwise_accuracy(unseen, simulated(unseen)).share();
  const Residual residual = Residual::fit(samples(3, 200, 1));
  const double after = pairwise_accuracy(unseen, corrected(residual, unseen)).share();
  EXPECT_LT(before, 0.85);
  EXPECT_GT(after, 0.95);
}

TEST(Residual, TrainedOnAPerfectSimulatorItChangesNoOrder) {
  std::vector<Sample> perfect = samples(2, 40, 3);
  for (Sample& sample : perfect) sample.simulated = sample.measured;
  const Residual residual = Residual::fit(perfect);
  EXPECT_GT(pairwise_accuracy(perfect, corrected(residual, perfect)).share(), 0.999);
}

TEST(Residual, WithoutSamplesIsTheSimulator) {
  const Residual residual = Residual::fit({});
  const std::vector<double> features(feature_names().size(), 1.0);
  EXPECT_EQ(residual.correct(features, Seconds(0.5)), Seconds(0.5));
  EXPECT_EQ(residual.bias({}), 1.0);
}

TEST(Residual, AFileAndEqualSamplesGiveEqualBits) {
  const std::vector<Sample> of = samples(2, 30, 5);
  const Residual residual = Residual::fit(of);
  EXPECT_EQ(residual.to_json(), Residual::fit(of).to_json());
  const Residual again = Residual::parse(residual.to_json(), "file");
  EXPECT_EQ(corrected(again, of), corrected(residual, of));
  EXPECT_EQ(again.samples(), 60U);
}

TEST(Residual, BiasIsTheRatioOfMeasuredToExpectedTime) {
  std::vector<Sample> of = samples(1, 40, 9);
  const Residual residual = Residual::fit(of);
  for (Sample& sample : of) {
    sample.measured = 3 * residual.correct(sample.features, Seconds(sample.simulated)).value;
  }
  EXPECT_NEAR(residual.bias(of), 3, 1e-9);
}

TEST(Residual, RefusesOtherFiles) {
  for (const char* text : {"", "{}", "[1]", R"({"format": "autodist residual 2"})"}) {
    EXPECT_THROW(Residual::parse(text, "r.json"), Error) << text;
  }
}

TEST(LinearRanker, OrdersByTheFeatureThatMatters) {
  const std::vector<Sample> of = samples(2, 40, 11);
  const LinearRanker ranker = LinearRanker::fit(of);
  std::vector<double> scores;
  for (const Sample& sample : of) scores.push_back(ranker.score(sample.paper));
  EXPECT_GT(pairwise_accuracy(of, scores).share(), 0.95);
  EXPECT_EQ(LinearRanker::fit({}).score(of[0].paper), 0);
}

TEST(Evaluation, TestsOnPlansThatAreNotTrainedOn) {
  const std::vector<Sample> of = samples(4, 40, 13);
  const std::vector<std::string> models{"a", "a", "b", "b"};
  const std::vector<std::string> clusters{"x", "y", "x", "y"};
  const auto rows = evaluate(of, models, clusters);
  ASSERT_FALSE(rows.empty());
  for (const EvaluationRow& row : rows) {
    EXPECT_EQ(row.cells, 4U);
    ASSERT_EQ(row.rankers.size(), 6U);
    EXPECT_LE(row.trials, 20U) << "ten plans are left to test on";
    const bool knows = row.known != Known::kNothing || row.trials > 0;
    const double simulator = row.rankers[2].accuracy.share();
    const double with_residual = row.rankers[3].accuracy.share();
    if (!knows) {
      EXPECT_EQ(with_residual, simulator);
    }
    for (const std::size_t control : {4U, 5U}) {
      EXPECT_NEAR(row.rankers[control].accuracy.share(), 0.5, 0.05) << row.rankers[control].ranker;
    }
    if (row.known != Known::kNothing) {
      EXPECT_GT(with_residual, simulator + 0.05);
    }
  }
}

TEST(Features, AutoSyncsTwelveAreThoseComputedByHand) {
  const auto graph = layers({100}, 1e-3);  // 40,000 bytes
  const cluster::Cluster cluster = machines({1, 1});
  strategy::Strategy strategy = build_strategy("PS", *graph, cluster);
  const PaperFeatures ps = paper_features(strategy, *graph, cluster);
  EXPECT_DOUBLE_EQ(ps[0], 2 * 2 * 40'000 / 125e6);
  EXPECT_DOUBLE_EQ(ps[1], 1);
  EXPECT_DOUBLE_EQ(ps[3], ps[0]);
  EXPECT_EQ(ps[6], 0);
  const PaperFeatures ring =
      paper_features(build_strategy("AllReduce", *graph, cluster), *graph, cluster);
  EXPECT_DOUBLE_EQ(ring[6], 40'000 / 125e6);
  EXPECT_EQ(ring[0], 0);
}

TEST(Propose, GivesDifferentPlansTheSameEveryTime) {
  const auto graph = layers({300, 200, 100}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1, 1});
  const auto plans = propose(graph, cluster, {}, 60, 1);
  ASSERT_EQ(plans.size(), 60U);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(plans[i].strategy == plans[j].strategy);
  }
  const auto again = propose(graph, cluster, {}, 60, 1);
  for (std::size_t i = 0; i < plans.size(); ++i) EXPECT_EQ(plans[i].strategy, again[i].strategy);
  EXPECT_FALSE(propose(graph, cluster, {}, 60, 2).back().strategy == plans.back().strategy);
}

}  // namespace
}  // namespace autodist::search
