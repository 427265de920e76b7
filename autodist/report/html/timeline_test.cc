#include "autodist/report/html/timeline.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/program/trace.h"

namespace autodist::report {
namespace {

program::TraceRow row(program::Activity activity, std::uint32_t rank, std::uint64_t step,
                      const char* name, double start, double end) {
  return {activity,       program::Rank(rank), program::StreamKind::kCompute, step, name, Bytes(8),
          Seconds(start), Seconds(end)};
}

TEST(Timeline, ReadsWhatTracesWrite) {
  program::Trace trace;
  trace.rows = {row(program::Activity::kCompute, 1, 3, "aten::mm", 0.001, 0.002),
                row(program::Activity::kMerge, 0, 3, "w", 0.0015, 0.003)};
  const Timeline timeline = read_timeline(program::to_chrome_json(trace), "a trace");
  ASSERT_EQ(timeline.rows.size(), 2U);
  ASSERT_EQ(timeline.tracks.size(), 2U);
  EXPECT_EQ(timeline.tracks[0].rank, program::Rank(0));
  EXPECT_EQ(timeline.tracks[0].name, "owner");
  const TimelineRow& op = timeline.rows[0];
  EXPECT_EQ(timeline.activity(op), "compute");
  EXPECT_EQ(timeline.names[op.name], "aten::mm");
  EXPECT_EQ(op.step, 3U);
  EXPECT_EQ(op.start_ns, 1'000'000);
  EXPECT_EQ(op.end_ns, 2'000'000);
  EXPECT_EQ(op.bytes, 8);
}

// What else a file says (a command line, the environment) has no way into the page.
TEST(Timeline, TakesRowsOfOursAlone) {
  const Timeline timeline = read_timeline(
      R"({"otherData": {"argv": "--key s3cret"}, "traceEvents": [
        {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "s3cret"}},
        {"ph": "X", "name": "s3cret", "cat": "python", "pid": 0, "tid": 0, "ts": 0, "dur": 1,
         "args": {"step": 0}},
        {"ph": "X", "name": "op", "cat": "compute", "pid": 0, "tid": 0, "ts": 0, "dur": 1,
         "args": {"step": 0, "bytes": 0, "env": "s3cret"}}]})",
      "a trace");
  EXPECT_EQ(timeline.names, std::vector<std::string>{"op"});
  EXPECT_EQ(timeline.rows.size(), 1U);
}

TEST(Timeline, ANumberThatNobodyNamesIsATrackForEachActivity) {
  const Timeline timeline = read_timeline(
      R"({"traceEvents": [
        {"ph": "X", "name": "w", "cat": "gate", "pid": 0, "tid": 0, "ts": 0, "dur": 1,
         "args": {"step": 0}},
        {"ph": "X", "name": "op", "cat": "compute", "pid": 0, "tid": 0, "ts": 1, "dur": 1,
         "args": {"step": 0}}]})",
      "a trace");
  ASSERT_EQ(timeline.tracks.size(), 2U);
  EXPECT_EQ(timeline.tracks[0].name, "compute");
  EXPECT_EQ(timeline.tracks[1].name, "gate");
}

TEST(Timeline, RowsThatOverlapLieOnLanesAndNumberedTracksAreOne) {
  const Timeline timeline = read_timeline(
      R"json({"traceEvents": [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 5000, "args": {"name": "wire"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 5001, "args": {"name": "wire (2)"}},
        {"ph": "X", "name": "a", "cat": "wire", "pid": 0, "tid": 5000, "ts": 0, "dur": 10,
         "args": {"step": 0}},
        {"ph": "b", "name": "b", "cat": "wire", "pid": 0, "tid": 5001, "ts": 5, "id": 1,
         "args": {"step": 0, "dur": 10}},
        {"ph": "X", "name": "c", "cat": "wire", "pid": 0, "tid": 5000, "ts": 10, "dur": 1,
         "args": {"step": 0}}]})json",
      "a trace");
  ASSERT_EQ(timeline.tracks.size(), 1U);
  EXPECT_EQ(timeline.tracks[0].lanes, 2U);
  EXPECT_EQ(timeline.rows[0].lane, 0U);
  EXPECT_EQ(timeline.rows[1].lane, 1U);
  EXPECT_EQ(timeline.rows[2].lane, 0U);
}

TEST(Timeline, RefusesWhatIsNoTrace) {
  EXPECT_THROW(read_timeline("{", "x.json"), Error);
  EXPECT_THROW(read_timeline("[]", "x.json"), Error);
  EXPECT_THROW(read_timeline(R"({"traceEvents": []})", "x.json"), Error);
  EXPECT_THROW(
      read_timeline(R"({"traceEvents": [{"ph": "X", "cat": "compute", "name": 7}]})", "x.json"),
      Error);
  EXPECT_THROW(
      read_timeline(R"({"traceEvents": [{"ph": "X", "cat": "compute", "name": "op", "pid": 0,
                       "tid": 0, "ts": 1e300, "dur": 1, "args": {"step": 0}}]})",
                    "x.json"),
      Error);
}

Timeline steps(std::uint64_t count, std::int64_t ops) {
  program::Trace trace;
  double at = 0;
  for (std::uint64_t step = 0; step < count; ++step) {
    for (std::int64_t op = 0; op < ops; ++op, at += 1e-6) {
      trace.rows.push_back(row(program::Activity::kCompute, 0, step, "op", at, at + 1e-6));
    }
  }
  return read_timeline(program::to_chrome_json(trace), "a trace");
}

TEST(Timeline, ThinsByWholeStepsInTheOrderThatIsWanted) {
  const Timeline part = thinned(steps(10, 5), {7, 2, 3, 4}, 16);
  EXPECT_EQ(steps_of(part), (std::vector<std::uint64_t>{2, 3, 7}));
  EXPECT_EQ(part.rows.size(), 15U);
}

TEST(Timeline, JoinsNeighboursWhereOneStepIsTooMuchAndSaysOfHowMany) {
  const Timeline part = thinned(steps(2, 1000), {1}, 10);
  ASSERT_LE(part.rows.size(), 10U);
  std::uint32_t stand_for = 0;
  for (const TimelineRow& each : part.rows) stand_for += each.stands_for;
  EXPECT_EQ(stand_for, 1000U);
  EXPECT_EQ(part.rows.front().start_ns, 1'000'000);
  EXPECT_EQ(part.rows.back().end_ns, 2'000'000);
}

TEST(Timeline, LeavesTheShortestOutWhereNothingJoins) {
  program::Trace trace;
  for (std::uint32_t rank = 0; rank < 30; ++rank) {
    trace.rows.push_back(row(program::Activity::kCompute, rank, 0, "op", 0, 1e-3 * (rank + 1)));
  }
  const Timeline whole = read_timeline(program::to_chrome_json(trace), "a trace");
  const Timeline part = thinned(whole, {0}, 10);
  ASSERT_EQ(part.rows.size(), 10U);
  EXPECT_EQ(part.left_out, 20U);
  for (const TimelineRow& each : part.rows) EXPECT_GT(each.end_ns, 20'000'000);
}

}  // namespace
}  // namespace autodist::report
