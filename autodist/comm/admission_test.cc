#include "autodist/comm/admission.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace autodist::comm {
namespace {

TEST(Admission, TheFirstComesInAndItsCopiesDoNot) {
  Admission admission;
  EXPECT_TRUE(admission.admit(3, 7));
  EXPECT_FALSE(admission.admit(3, 7));
  EXPECT_TRUE(admission.admit(3, 8));
  EXPECT_TRUE(admission.admit(2, 7)) << "another step";
}

TEST(Admission, AnOldStepThatHasBeenForgottenCountsAsALateCopy) {
  Admission admission;
  EXPECT_TRUE(admission.admit(0, 1));
  EXPECT_TRUE(admission.admit(kStepsApart, 1));
  EXPECT_FALSE(admission.admit(0, 1));
}

TEST(Admission, AJumpFarAheadForgetsEverythingBefore) {
  Admission admission;
  EXPECT_TRUE(admission.admit(5, 1));
  EXPECT_TRUE(admission.admit(1'000'000'000'000, 1));
  EXPECT_FALSE(admission.admit(1'000'000'000'000, 1));
  EXPECT_TRUE(admission.admit(1'000'000'000'000 - kStepsApart + 1, 1));
  EXPECT_FALSE(admission.admit(5, 2));
}

// Against a set that never forgets: equal as long as senders keep their steps together.
TEST(Admission, AgreesWithASetThatNeverForgets) {
  std::mt19937 random(5);
  Admission admission;
  std::set<std::pair<std::uint64_t, MessageId>> all;
  std::uint64_t newest = 0;
  for (int frame = 0; frame < 20'000; ++frame) {
    if (random() % 50 == 0) newest += random() % 5;
    const std::uint64_t back = random() % kStepsApart;
    const std::uint64_t step = newest < back ? 0 : newest - back;
    const MessageId slice = random() % 200;
    EXPECT_EQ(admission.admit(step, slice), all.insert({step, slice}).second);
  }
}

TEST(Admission, KnowsWhatCame) {
  Admission admission;
  EXPECT_FALSE(admission.came(100, 3));
  EXPECT_TRUE(admission.admit(100, 3));
  EXPECT_TRUE(admission.came(100, 3));
  EXPECT_FALSE(admission.came(100, 400));
  EXPECT_FALSE(admission.came(99, 3));
  EXPECT_FALSE(admission.came(101, 3));
  EXPECT_TRUE(admission.came(100 - kStepsApart, 3)) << "a late copy";
}

}  // namespace
}  // namespace autodist::comm
