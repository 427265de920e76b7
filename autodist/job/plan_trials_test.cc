#include "autodist/job/plan_trials.h"

#include <gtest/gtest.h>

#include <random>

namespace autodist::job {
namespace {

constexpr std::int64_t kBlock = 5;

// Runs them to their end: plan i takes means[i], with noise of so large a share, and in every round
// the machine is as fast as it likes.
PlanTrials run(const std::vector<double>& means, const std::vector<Seconds>& predicted,
               double noise, std::uint64_t seed, PlanTrials::Limits limits = {0, Seconds{1e9}}) {
  PlanTrials trials(predicted, 0, limits);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> scatter(1, noise);
  std::uniform_real_distribution<double> machine(0.7, 1.4);
  double round = 1;
  std::int64_t rounds = -1;
  Seconds passed;
  while (const auto plan = trials.next(kBlock)) {
    if (trials.rounds() != rounds) {
      rounds = trials.rounds();
      round = machine(random);
    }
    const Seconds step{means[*plan] * round * std::max(0.1, scatter(random))};
    passed += step * static_cast<double>(kBlock);
    trials.add(step, kBlock, passed);
  }
  return trials;
}

std::vector<Seconds> alike(std::size_t plans) { return std::vector<Seconds>(plans, Seconds{1}); }

TEST(PlanTrials, TakeThePlanThatIsFaster) {
  int right = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const PlanTrials trials = run({1.0, 0.8, 1.1, 0.9}, alike(4), 0.05, seed);
    right += trials.best() == 1 ? 1 : 0;
    EXPECT_LT(trials.rounds(), PlanTrials::kMostRounds) << "the others are dropped before";
  }
  EXPECT_GE(right, 98);
}

TEST(PlanTrials, AFineMeasurementOverrulesAnyPrediction) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    // Predicted to be 30 % faster, and 7 % slower.
    const PlanTrials trials = run({1.0, 1.07}, {Seconds{1}, Seconds{0.77}}, 0.02, seed);
    EXPECT_EQ(trials.best(), 0U) << trials.gain(1)->mean << " to " << trials.gain(1)->error;
  }
}

TEST(PlanTrials, ACoarseMeasurementLeavesALargePredictedGain) {
  int kept = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const PlanTrials trials =
        run({1.0, 0.8}, {Seconds{1}, Seconds{0.8}}, 0.3, seed, {30, Seconds{1e9}});
    kept += trials.best() == 1 ? 1 : 0;
  }
  EXPECT_GE(kept, 95) << "three rounds with a scatter of 30 %";
}

TEST(PlanTrials, AMachineThatSlowsDownFavoursNobody) {
  PlanTrials trials(alike(2), 0, {0, Seconds{1e9}});
  double slow = 1;
  while (const auto plan = trials.next(kBlock)) {
    trials.add(Seconds{(*plan == 0 ? 1.0 : 0.98) * slow}, kBlock, {});
    slow *= 1.1;
  }
  // Orders rotate, so that each is first in every other round.
  EXPECT_NEAR(trials.gain(1)->mean, 1 / 0.98, 0.06);
  EXPECT_LT(trials.gain(1)->low, 1) << "not beyond doubt";
}

TEST(PlanTrials, EndWithinTheirLimits) {
  const PlanTrials few = run({1.0, 0.5}, alike(2), 0.01, 1, {29, Seconds{1e9}});
  EXPECT_EQ(few.rounds(), 2) << "a third round would be 30 steps";
  EXPECT_EQ(few.best(), 0U) << "two rounds decide nothing";
  EXPECT_EQ(run({1.0, 0.5}, alike(2), 0.01, 1, {30, Seconds{1e9}}).best(), 1U);
  const PlanTrials soon = run({1.0, 1.0, 1.0}, alike(3), 0.3, 1, {0, Seconds{40}});
  EXPECT_LE(soon.rounds(), 4) << "of about 15 s each";
  EXPECT_GE(soon.rounds(), 1);
}

TEST(PlanTrials, OfOnePlanThereAreNone) {
  const PlanTrials alone(alike(1), 0, {});
  EXPECT_FALSE(alone.next(kBlock));
  EXPECT_EQ(alone.best(), 0U);
  EXPECT_FALSE(alone.gain(0)) << "nothing was measured";
  EXPECT_EQ(alone.median(0).value, 0);
}

TEST(PlanTrials, SayWhatWasMeasured) {
  const PlanTrials trials = run({2.0, 1.0}, alike(2), 0, 3);
  EXPECT_NEAR(trials.gain(1)->mean, 2, 1e-9);
  EXPECT_NEAR(trials.gain(1)->low, 2, 1e-9);
  EXPECT_GT(trials.median(0), trials.median(1));
  EXPECT_EQ(trials.rounds(), PlanTrials::kLeastRounds);
}

}  // namespace
}  // namespace autodist::job
