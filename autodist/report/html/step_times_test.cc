#include "autodist/report/html/step_times.h"

#include <gtest/gtest.h>

#include "autodist/program/trace.h"

namespace autodist::report {
namespace {

constexpr double kMs = 1e-3;

class Steps {
 public:
  void add(program::Activity activity, std::uint32_t rank, std::uint64_t step, const char* name,
           double start_ms, double end_ms) {
    trace_.rows.push_back({activity, program::Rank(rank), program::StreamKind::kCompute, step, name,
                           Bytes(0), Seconds(start_ms * kMs), Seconds(end_ms * kMs)});
  }
  // A gate for `waiting` ms and then ops for `computing` ms, in steps of 10 ms.
  void step(std::uint32_t rank, std::uint64_t step, double waiting, double computing) {
    const double start = 10.0 * static_cast<double>(step);
    add(program::Activity::kGate, rank, step, "w", start, start + waiting);
    add(program::Activity::kCompute, rank, step, "op", start + waiting,
        start + waiting + computing);
  }
  StepTimes times() const {
    return times_of(read_timeline(program::to_chrome_json(trace_), "test"));
  }

 private:
  program::Trace trace_;
};

TEST(StepTimes, PartsOfAStepAddUpWithoutTheFirstAndTheLast) {
  Steps steps;
  steps.step(0, 0, 0, 9.5);  // cold
  steps.step(0, 1, 2, 6);
  steps.step(0, 2, 4, 4);
  steps.step(0, 3, 0, 1);  // its end is not seen
  const StepTimes times = steps.times();
  EXPECT_EQ(times.counted, 2);
  ASSERT_EQ(times.ranks.size(), 1U);
  const RankTimes& rank = times.ranks[0];
  EXPECT_NEAR(rank.computing.value, 5 * kMs, 1e-9);
  EXPECT_NEAR(rank.waiting.value, 3 * kMs, 1e-9);
  EXPECT_NEAR(rank.between.value, 2 * kMs, 1e-9);
  EXPECT_NEAR(times.median.value, 10 * kMs, 1e-9);
  ASSERT_EQ(times.steps.size(), 4U);
  EXPECT_TRUE(times.steps[2].whole);
  EXPECT_FALSE(times.steps[3].whole);
  ASSERT_EQ(times.waits.size(), 1U);
  EXPECT_EQ(times.waits[0].name, "w");
  EXPECT_EQ(times.waits[0].waits, 2);
  EXPECT_NEAR(times.waits[0].per_step.value, 3 * kMs, 1e-9);
  EXPECT_NEAR(times.waits[0].longest.value, 4 * kMs, 1e-9);
}

TEST(StepTimes, WhatIsOnTheWayAtOnceCountsOnce) {
  Steps steps;
  for (std::uint64_t step = 0; step < 4; ++step) {
    const double start = 10.0 * static_cast<double>(step);
    steps.step(0, step, 0, 9);
    steps.add(program::Activity::kWire, 0, step, "a", start, start + 4);
    steps.add(program::Activity::kWire, 0, step, "b", start + 2, start + 6);
    steps.add(program::Activity::kMerge, 0, step, "a", start + 1, start + 2);
  }
  const StepTimes times = steps.times();
  EXPECT_NEAR(times.ranks[0].sending.value, 6 * kMs, 1e-9);
  EXPECT_NEAR(times.ranks[0].owning.value, 1 * kMs, 1e-9);
}

TEST(StepTimes, SaysWhatAStepIsBoundedBy) {
  Steps computing;
  Steps waiting;
  Steps between;
  for (std::uint64_t step = 0; step < 5; ++step) {
    computing.step(0, step, 1, 8);
    waiting.step(0, step, 8, 1);
    between.step(0, step, 1, 1);
  }
  EXPECT_EQ(verdict_of(computing.times()).headline, "Bounded by computing");
  const Verdict verdict = verdict_of(waiting.times());
  EXPECT_EQ(verdict.headline, "Bounded by communication: ranks wait for variables");
  EXPECT_NE(verdict.reasons.back().find("'w'"), std::string::npos) << verdict.reasons.back();
  EXPECT_NE(verdict.reasons.back().find("80 %"), std::string::npos) << verdict.reasons.back();
  EXPECT_NE(verdict.what_to_do.find("autodist plan"), std::string::npos) << verdict.what_to_do;
  EXPECT_EQ(verdict_of(between.times()).headline, "Bounded by what lies between the ops");
}

TEST(StepTimes, NamesARankThatTheOthersWaitFor) {
  Steps steps;
  for (std::uint64_t step = 0; step < 6; ++step) {
    steps.step(0, step, 4, 5);
    steps.step(1, step, 4, 5);
    steps.step(2, step, 0, 9);
  }
  const StepTimes times = steps.times();
  EXPECT_EQ(verdict_of(times).headline, "Bounded by rank 2, which computes longest");
}

TEST(StepTimes, CountsWhoEndsLast) {
  Steps steps;
  for (std::uint64_t step = 0; step < 6; ++step) {
    steps.step(0, step, 0, 5);
    steps.step(1, step, 0, 5);
    steps.step(2, step, 0, 9);
  }
  const StepTimes times = steps.times();
  EXPECT_EQ(times.ranks[2].last, times.counted);
  EXPECT_NEAR(times.ranks[2].behind.value, 4 * kMs, 1e-9);
  EXPECT_EQ(times.ranks[0].last, 0);
}

TEST(StepTimes, RowsOfAnOwnerAloneMakeNoStep) {
  Steps steps;
  steps.add(program::Activity::kMerge, 0, 0, "w", 0, 1);
  EXPECT_TRUE(steps.times().steps.empty());
  EXPECT_TRUE(steps.times().ranks.empty());
}

TEST(StepTimes, ShowsTheMedianStepFirst) {
  Steps steps;
  for (std::uint64_t step = 0; step < 8; ++step) steps.step(0, step, 0, 5);
  const StepTimes times = steps.times();
  const std::vector<std::uint64_t> wanted = worth_showing(times);
  EXPECT_EQ(wanted.front(), times.median_step);
  EXPECT_EQ(wanted[1], times.median_step + 1);
}

}  // namespace
}  // namespace autodist::report
