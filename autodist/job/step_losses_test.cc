#include "autodist/job/step_losses.h"

#include <gtest/gtest.h>

namespace autodist::job {
namespace {

TEST(StepLosses, AStepsLossIsComparedWithThatOfAnEarlierGeneration) {
  StepLosses losses;
  constexpr std::uint64_t kSeries = 0xfedcba9876543210;
  EXPECT_FALSE(losses.compare(0, kSeries, 7, 0.25));
  EXPECT_FALSE(losses.compare(0, kSeries, 7, 0.5)) << "the program itself has gone back";
  EXPECT_FALSE(losses.compare(1, kSeries, 8, 0.125));
  EXPECT_FALSE(losses.compare(1, kSeries + 1, 7, 0.125)) << "of another model or plan";
  EXPECT_EQ(losses.compare(1, kSeries, 7, 0.75), 0.5);
  EXPECT_FALSE(losses.compare(1, kSeries, 7, 0.75)) << "that was this generation's";
  EXPECT_EQ(losses.compare(2, kSeries, 7, 0.75), 0.75);
  losses.forget();
  EXPECT_FALSE(losses.compare(3, kSeries, 7, 0.75)) << "its job has ended in order";
}

TEST(StepLosses, TheLastOnesAreRemembered) {
  StepLosses losses;
  constexpr auto kSteps = static_cast<std::int64_t>(3 * StepLosses::kRemembered);
  constexpr auto kFirst = static_cast<std::int64_t>(2 * StepLosses::kRemembered);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    losses.compare(0, 5, step, static_cast<double>(step));
  }
  EXPECT_FALSE(losses.compare(1, 5, kFirst - 1, 0));
  EXPECT_EQ(losses.compare(1, 5, kFirst, 0), static_cast<double>(kFirst));
  EXPECT_EQ(losses.compare(1, 5, kSteps - 2, 0), static_cast<double>(kSteps - 2));
}

}  // namespace
}  // namespace autodist::job
