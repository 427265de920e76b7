#include "autodist/report/late.h"

#include <gtest/gtest.h>

namespace autodist::report {
namespace {

using program::Activity;
using program::Rank;

class LateTest : public ::testing::Test {
 protected:
  void add(Activity activity, std::uint32_t rank, std::uint64_t step, const std::string& name,
           double start, double end) {
    trace.rows.push_back({activity, Rank(rank), program::StreamKind::kTransfer, step, name,
                          Bytes{4}, Seconds{start}, Seconds{end}});
  }
  void add(Activity activity, std::uint32_t rank, std::uint64_t step, double start, double end,
           std::uint32_t slice, std::uint32_t to, bool result) {
    add(activity, rank, step, slice < 2 ? "a/part_" + std::to_string(slice) : "b", start, end);
    trace.rows.back().hop = program::SliceHop{program::SliceId(slice), Rank(to), result};
  }

  // Rank 0 owns slice 1 of `a`, rank 1 slice 0; the former waits in the queue of rank 1.
  void one_step() {
    add(Activity::kMerge, 1, 0, 0.1, 0.2, 0, 1, false);
    add(Activity::kWire, 1, 0, 0.2, 0.3, 0, 0, true);
    add(Activity::kQueue, 1, 0, 0.0, 1.0, 1, 0, false);
    add(Activity::kWire, 1, 0, 1.0, 1.25, 1, 0, false);
    add(Activity::kMerge, 0, 0, 1.5, 1.75, 1, 0, false);
    add(Activity::kQueue, 0, 0, 1.75, 2.0, 1, 1, true);
    add(Activity::kWire, 0, 0, 2.0, 2.5, 1, 1, true);
    add(Activity::kInstall, 0, 0, "a", 2.0, 2.25);
    add(Activity::kInstall, 1, 0, "a", 2.5, 3.0);
    add(Activity::kGate, 0, 1, "a", 1.25, 2.25);
    add(Activity::kGate, 1, 1, "a", 1.0, 3.0);
  }

  program::Trace trace;
};

TEST_F(LateTest, TheLastSliceOfAVariableIsBlamedWithItsWay) {
  one_step();
  const std::vector<LateSlice> late = late_slices(trace);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].slice, program::SliceId(1));
  EXPECT_EQ(late[0].name, "a/part_1");
  EXPECT_EQ(late[0].waits, 2);
  EXPECT_EQ(late[0].waited, Seconds{3});
  EXPECT_EQ(late[0].contribution_queue, Seconds{1});
  EXPECT_EQ(late[0].contribution_wire, Seconds{0.25});
  EXPECT_EQ(late[0].owner, Seconds{0.5});
  EXPECT_EQ(late[0].result_queue, Seconds{0.125}) << "rank 0 has it without a queue";
  EXPECT_EQ(late[0].result_wire, Seconds{0.25});
  EXPECT_EQ(late[0].install, Seconds{0.5});
}

TEST_F(LateTest, TheDearestComesFirst) {
  one_step();
  add(Activity::kMerge, 0, 0, 0.1, 0.2, 2, 0, false);
  add(Activity::kGate, 0, 1, "b", 10, 14);
  const std::vector<LateSlice> late = late_slices(trace);
  ASSERT_EQ(late.size(), 2u);
  EXPECT_EQ(late[0].name, "b");
  EXPECT_EQ(waiting(trace), Seconds{7});
  EXPECT_NE(late_table(trace, 1).find("1 of 2 slices"), std::string::npos) << late_table(trace, 1);
}

TEST_F(LateTest, AGateWithoutSlicesCountsAsWaitingAlone) {
  add(Activity::kGate, 0, 1, "c", 0, 2);
  EXPECT_TRUE(late_slices(trace).empty());
  EXPECT_EQ(waiting(trace), Seconds{2});
}

}  // namespace
}  // namespace autodist::report
