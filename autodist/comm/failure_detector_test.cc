#include "autodist/comm/failure_detector.h"

#include <gtest/gtest.h>

namespace autodist::comm {
namespace {

FrameHeader from(RankNumber rank, FrameKind kind, std::uint64_t step = 0, MessageId id = 0) {
  return {kind, 1, step, id, rank, 0};
}

TEST(FailureDetector, APeerIsLostAfterItsSilenceAndNotBefore) {
  FailureDetector detector(0, 3, Seconds{3}, Seconds{10}, Seconds{100});
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{100});
  detector.heard(from(2, FrameKind::kHeartbeat), Seconds{100});
  EXPECT_FALSE(detector.lost(Seconds{103}));
  detector.heard(from(1, FrameKind::kAcknowledge), Seconds{102});
  EXPECT_EQ(detector.lost(Seconds{103.1}), 2u);
}

TEST(FailureDetector, APeerThatHasNotStartedYetIsGivenMoreTime) {
  FailureDetector detector(1, 2, Seconds{3}, Seconds{10}, Seconds{0});
  EXPECT_FALSE(detector.lost(Seconds{9}));
  EXPECT_EQ(detector.lost(Seconds{10.5}), 0u);
  EXPECT_EQ(detector.account(0, Seconds{10.5}), "silent for 10.50 s; it was never heard");
}

TEST(FailureDetector, SilenceThatThisRankSleptThroughDoesNotCount) {
  FailureDetector detector(0, 2, Seconds{3}, Seconds{3}, Seconds{0});
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{0});
  detector.deaf_until(Seconds{20});
  EXPECT_FALSE(detector.lost(Seconds{22}));
  EXPECT_EQ(detector.lost(Seconds{23.5}), 1u);
}

TEST(FailureDetector, TellsTheLastMessageEvenWhenHeartbeatsFollowedIt) {
  FailureDetector detector(0, 2, Seconds{3}, Seconds{3}, Seconds{0},
                           [](FrameKind kind, MessageId id) {
                             EXPECT_EQ(kind, FrameKind::kFirstMessage);
                             return "contribution of slice " + std::to_string(id);
                           });
  detector.heard(from(1, FrameKind::kFirstMessage, 4, 17), Seconds{1});
  EXPECT_EQ(detector.account(1, Seconds{3}),
            "silent for 2.00 s; last heard: contribution of slice 17, step 4");
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{2});
  EXPECT_EQ(detector.account(1, Seconds{3}),
            "silent for 1.00 s; last heard: heartbeat, and before that: contribution of slice 17, "
            "step 4");
}

TEST(FailureDetector, ASilenceIsNewsOnceAndSoIsItsEnd) {
  FailureDetector detector(0, 3, Seconds{20}, Seconds{60}, Seconds{0});
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{1});
  EXPECT_FALSE(detector.news(Seconds{3}, Seconds{4})) << "and rank 2 has not started yet";
  const auto silent = detector.news(Seconds{3}, Seconds{4.5});
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->rank, 1u);
  EXPECT_FALSE(silent->back);
  EXPECT_EQ(silent->silent, Seconds{3.5});
  EXPECT_FALSE(detector.news(Seconds{3}, Seconds{9})) << "it is known";
  EXPECT_FALSE(detector.lost(Seconds{9}));
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{11});
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{11.1});
  const auto back = detector.news(Seconds{3}, Seconds{11.2});
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->back);
  EXPECT_EQ(back->silent, Seconds{10});
  EXPECT_FALSE(detector.news(Seconds{3}, Seconds{12}));
  EXPECT_TRUE(detector.news(Seconds{3}, Seconds{15})) << "a second silence";
}

TEST(FailureDetector, WhoIsExcusedMayBeSilent) {
  FailureDetector detector(0, 2, Seconds{3}, Seconds{3}, Seconds{0});
  detector.heard(from(1, FrameKind::kHeartbeat), Seconds{0});
  detector.excuse(1);
  EXPECT_FALSE(detector.lost(Seconds{100}));
  EXPECT_FALSE(detector.news(Seconds{3}, Seconds{100}));
}

}  // namespace
}  // namespace autodist::comm
