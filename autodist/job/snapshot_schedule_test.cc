#include "autodist/job/snapshot_schedule.h"

#include <gtest/gtest.h>

namespace autodist::job {
namespace {

TEST(SnapshotSchedule, TakesAHundredthOfTheTime) {
  SnapshotSchedule schedule(10, Seconds{100});
  // Five steps of 0.1 s; 20 ms of holding and 30 ms beside are charged as 75 ms, which is a
  // hundredth of 75 steps.
  EXPECT_EQ(schedule.taken(15, Seconds{100.5}, Seconds{100.52}, Seconds{0.03}), 90);
  EXPECT_EQ(schedule.steps_apart(), 75);
  EXPECT_NEAR(schedule.apart().value, 7.5, 1e-6);
  EXPECT_EQ(schedule.soon(90), 99);
  EXPECT_EQ(schedule.much_later(90), 690);
  // Steps have become ten times as slow.
  EXPECT_EQ(schedule.taken(90, Seconds{175.52}, Seconds{175.57}, Seconds{0}), 98);
}

TEST(SnapshotSchedule, IsDueAtEveryStepWhereStepsAreLong) {
  SnapshotSchedule schedule(0, Seconds{0});
  EXPECT_EQ(schedule.taken(5, Seconds{100}, Seconds{100.01}, Seconds{0.01}), 6);
  EXPECT_EQ(schedule.soon(6), 7);
}

TEST(SnapshotSchedule, TakesNoStepForNone) {
  SnapshotSchedule schedule(3, Seconds{1});
  EXPECT_GT(schedule.taken(3, Seconds{1}, Seconds{1.5}, Seconds{0}), 3);
}

}  // namespace
}  // namespace autodist::job
