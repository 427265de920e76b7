#include "autodist/job/same_bits.h"

#include <gtest/gtest.h>

#include <limits>

namespace autodist::job {
namespace {

const std::vector<cluster::Place> kThree(3);

TEST(SameBits, NothingIsSaidWhereAllRanksComputeAsBefore) {
  EXPECT_EQ(other_computing_line({"A", "A", "B"}, {"A", "A", "B"}, kThree), "");
  EXPECT_EQ(other_computing_line({"A", "A"}, {"A", "A", "B"}, kThree), "");
  EXPECT_EQ(other_computing_line({}, {"A", "A", "B"}, kThree), "");
}

TEST(SameBits, TheFirstRankThatComputesOnSomethingElseIsNamedAndOthersAreCounted) {
  EXPECT_EQ(other_computing_line({"A", "A", "B"}, {"A", "C", "B"}, kThree),
            "rank 1 now computes on C in place of A: results may differ in their last bits from a "
            "run that lost nothing");
  EXPECT_EQ(other_computing_line({"A", "A", "B"}, {"A", "C", "C"}, kThree),
            "rank 1 now computes on C in place of A, and 1 more on others than before: results may "
            "differ in their last bits from a run that lost nothing");
}

TEST(SameBits, ALossIsAnotherOneWhereABitOfItIs) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(other_loss_line(3, 0.5, 0.5), "");
  EXPECT_EQ(other_loss_line(3, nan, -nan), "");
  EXPECT_NE(other_loss_line(3, nan, 0.5), "");
  EXPECT_NE(other_loss_line(3, 0.0, -0.0), "");
  EXPECT_EQ(other_loss_line(120, 0.5124, 0.5123),
            "step 120 was done again and its loss is 0.5123, before 0.5124: something outside of "
            "the job's state differs (data, CPU, or what the loop changes itself)");
}

}  // namespace
}  // namespace autodist::job
