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

TEST(FrameUse, AnExchangeTakesWhatIsOfItsGenerationAndRefusesWhatIsOfEarlierOnes) {
  const auto use = [](FrameKind kind, std::uint32_t generation, MessageId id = 0) {
    FrameHeader header;
    header.kind = kind;
    header.generation = generation;
    header.id = id;
    return use_of(header, 2);
  };
  for (const FrameKind kind :
       {FrameKind::kFirstMessage, FrameKind::kAcknowledge, FrameKind::kGoodbye}) {
    EXPECT_EQ(use(kind, 1), FrameUse::kRefused);
    EXPECT_EQ(use(kind, 2), FrameUse::kTaken);
    EXPECT_EQ(use(kind, 3), FrameUse::kLater);
  }
  EXPECT_EQ(use(FrameKind::kFirstMessage, 2, kIdLimit - 1), FrameUse::kTaken);
  EXPECT_EQ(use(FrameKind::kFirstMessage, 2, kIdLimit), FrameUse::kRefused);
  EXPECT_EQ(use(FrameKind::kHeartbeat, 2), FrameUse::kTaken);
  for (const std::uint32_t generation : {1U, 3U}) {
    EXPECT_EQ(use(FrameKind::kHeartbeat, generation), FrameUse::kSignOfLife);
  }
  for (const std::uint32_t generation : {1U, 2U, 3U}) {
    EXPECT_EQ(use(FrameKind::kAlive, generation), FrameUse::kSignOfLife);
    EXPECT_EQ(use(FrameKind::kControl, generation), FrameUse::kLater);
  }
}

}  // namespace
}  // namespace autodist::comm
