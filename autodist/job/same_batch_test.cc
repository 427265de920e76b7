#include "autodist/job/same_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace autodist::job {
namespace {

using ::testing::HasSubstr;

// The sums of a step whose graph has a loss, and whose ranks have given batches with these digests.
std::vector<double> sums_of(const std::vector<std::uint64_t>& digests) {
  std::vector<double> sums{0.5, 0, 0, 0};
  for (const std::uint64_t digest : digests) {
    const std::vector<double> numbers = batch_numbers(digest);
    for (std::size_t i = 0; i < numbers.size(); ++i) sums[i + 1] += numbers[i];
  }
  return sums;
}

TEST(SameBatch, NothingIsSaidWhereAllRanksGiveTheSame) {
  const std::uint64_t digest = 0x123456789ABCFFFF;
  EXPECT_EQ(other_batch_line(0, sums_of({digest})), "");
  EXPECT_EQ(other_batch_line(0, sums_of({digest, digest, digest})), "");
  EXPECT_EQ(other_batch_line(0, sums_of(std::vector<std::uint64_t>(1 << 15, digest))), "");
}

TEST(SameBatch, NothingIsSaidWhereNoRankHasGivenAWholeBatch) {
  EXPECT_EQ(other_batch_line(0, {}), "");
  EXPECT_EQ(other_batch_line(0, sums_of({})), "");
}

TEST(SameBatch, OneRankAmongManyWithAnotherOneIsNoticed) {
  EXPECT_THAT(other_batch_line(1, sums_of({5, 5, 6})), HasSubstr("step 1: the ranks"));
  std::vector<std::uint64_t> digests(1 << 15, 0xFFFF);
  digests.back() = 0xFFFE;
  EXPECT_NE(other_batch_line(0, sums_of(digests)), "");
}

}  // namespace
}  // namespace autodist::job
