#include "autodist/exec/trace_recorder.h"

#include <gtest/gtest.h>

#include <map>

namespace autodist::exec {
namespace {

void add(TraceRecorder& trace, std::uint64_t step) {
  trace.add(program::Activity::kCompute, program::StreamKind::kCompute, step, "op", Bytes{},
            trace.now());
}

std::map<std::uint64_t, int> rows_by_step(TraceRecorder& trace) {
  std::map<std::uint64_t, int> rows;
  for (const program::TraceRow& row : trace.take().rows) ++rows[row.step];
  return rows;
}

TEST(TraceRecorder, KeepsAllStepsUnlessToldOtherwise) {
  const SteadyClock clock;
  TraceRecorder trace(clock, program::Rank(0), true);
  for (std::uint64_t step = 0; step < 100; ++step) add(trace, step);
  EXPECT_EQ(rows_by_step(trace).size(), 100u);
  EXPECT_TRUE(rows_by_step(trace).empty()) << "taken already";
}

TEST(TraceRecorder, GoesOnWhereAnEarlierOneEnded) {
  const SteadyClock clock;
  TraceRecorder first(clock, program::Rank(0), true, 3);
  for (std::uint64_t step = 0; step < 3; ++step) add(first, step);
  TraceRecorder second(clock, program::Rank(0), true, 3, {first.take(), first.origin()});
  EXPECT_EQ(second.origin(), first.origin());
  add(second, 3);
  const auto kept = rows_by_step(second);
  EXPECT_EQ(kept.begin()->first, 1u) << "the last three steps of both";
  EXPECT_EQ(kept.size(), 3u);
}

TEST(TraceRecorder, KeepsTheLastSteps) {
  const SteadyClock clock;
  TraceRecorder trace(clock, program::Rank(0), true, 3);
  for (std::uint64_t step = 0; step < 100; ++step) {
    add(trace, step);
    add(trace, step);
    if (step > 5) add(trace, step - 5);  // late
  }
  EXPECT_EQ(rows_by_step(trace), (std::map<std::uint64_t, int>{{97, 2}, {98, 2}, {99, 2}}));
  add(trace, 98);
  add(trace, 100);
  EXPECT_EQ(rows_by_step(trace), (std::map<std::uint64_t, int>{{98, 1}, {100, 1}}));
}

}  // namespace
}  // namespace autodist::exec
