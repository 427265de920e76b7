#include "autodist/comm/outbox.h"

#include <gtest/gtest.h>

#include "autodist/base/check.h"
#include "autodist/comm/admission.h"

namespace autodist::comm {
namespace {

Outgoing slice(MessageId number, double needed, std::uint64_t step = 0,
               const std::string& bytes = "0123456789") {
  return {FrameKind::kFirstMessage, step, number, 3, Seconds{needed}, Payload::copy_of(bytes)};
}

Outbox outbox_with_window(std::int64_t bytes) {
  ExchangeOptions options;
  options.generation = 9;
  options.window = options.nic_budget = Bytes{bytes};
  return {0, 3, options, Seconds{1}};
}

TEST(Outbox, ASliceLeavesWithEverythingThatItsOwnerNeeds) {
  Outbox outbox = outbox_with_window(100);
  outbox.post(2, slice(5, 1, 7));
  const auto out = outbox.next(Seconds{0});
  EXPECT_EQ(out->to, 2u);
  EXPECT_EQ(out->frame.header, (FrameHeader{FrameKind::kFirstMessage, 9, 7, 5, 0, 3}));
  EXPECT_EQ(out->frame.payload.to_string(), "0123456789");
}

TEST(Outbox, IsEmptyOnlyWhenEverythingIsAcknowledged) {
  Outbox outbox = outbox_with_window(100);
  outbox.post(1, slice(5, 1));
  EXPECT_EQ(outbox.pending(1), 1u);
  EXPECT_TRUE(outbox.next(Seconds{0}));
  EXPECT_FALSE(outbox.empty());
  EXPECT_EQ(outbox.acknowledge(1, FrameKind::kFirstMessage, 0, 5)->payload.size, 10u);
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.pending(1), 0u);
  EXPECT_FALSE(outbox.acknowledge(1, FrameKind::kFirstMessage, 0, 5)) << "a second time";
}

TEST(Outbox, WhatHasArrivedSaysWhenItWasPostedAndWhenItLeft) {
  Outbox outbox = outbox_with_window(100);
  outbox.post(1, slice(5, 1), Seconds{3});
  EXPECT_TRUE(outbox.next(Seconds{4}));
  const auto once = outbox.acknowledge(1, FrameKind::kFirstMessage, 0, 5);
  EXPECT_EQ(once->posted, Seconds{3});
  EXPECT_EQ(once->left, Seconds{4});
  EXPECT_FALSE(once->again);
  outbox.post(1, slice(6, 1), Seconds{5});
  EXPECT_TRUE(outbox.next(Seconds{5}));
  EXPECT_EQ(outbox.overdue(Seconds{7}).size(), 1u);
  const auto twice = outbox.acknowledge(1, FrameKind::kFirstMessage, 0, 6);
  EXPECT_EQ(twice->left, Seconds{7});
  EXPECT_TRUE(twice->again);
}

TEST(Outbox, WhatIsNotAcknowledgedLeavesAgainWithGrowingPatience) {
  Outbox outbox = outbox_with_window(100);
  outbox.post(1, slice(5, 1));
  EXPECT_TRUE(outbox.next(Seconds{10}));
  EXPECT_TRUE(outbox.overdue(Seconds{10.9}).empty());
  ASSERT_EQ(outbox.overdue(Seconds{11}).size(), 1u);
  EXPECT_TRUE(outbox.overdue(Seconds{12.9}).empty());
  ASSERT_EQ(outbox.overdue(Seconds{13}).size(), 1u);
  EXPECT_TRUE(outbox.overdue(Seconds{16.9}).empty());
}

TEST(Outbox, WhatStillWaitsForTheWindowIsNotOverdue) {
  Outbox outbox = outbox_with_window(10);
  outbox.post(1, slice(5, 1));
  outbox.post(1, slice(6, 2));
  EXPECT_TRUE(outbox.next(Seconds{0}));
  EXPECT_FALSE(outbox.next(Seconds{0}));
  EXPECT_EQ(outbox.overdue(Seconds{100}).size(), 1u);
}

TEST(Outbox, ASliceThatIsTooLargeLeavesInPiecesAndHasArrivedWithItsLast) {
  ExchangeOptions options;
  options.piece = Bytes{3};
  options.window = options.nic_budget = Bytes{1000};
  Outbox outbox(0, 3, options, Seconds{1});
  const std::string bytes(49, 'x');
  outbox.post(1, slice(5, 1, 7, bytes));
  std::string came;
  for (std::uint16_t i = 0; i < 17; ++i) {
    const auto out = outbox.next(Seconds{0});
    ASSERT_TRUE(out);
    EXPECT_EQ(out->frame.header.piece, i);
    EXPECT_EQ(out->frame.header.pieces, 17);
    came += out->frame.payload.to_string();
  }
  EXPECT_EQ(came, bytes);
  EXPECT_FALSE(outbox.next(Seconds{0}));
  for (std::uint16_t i = 17; i-- > 0;) {
    EXPECT_FALSE(outbox.empty());
    const auto delivered = outbox.acknowledge(1, FrameKind::kFirstMessage, 7, 5, i);
    ASSERT_TRUE(delivered);
    EXPECT_EQ(delivered->whole, i == 0);
    EXPECT_EQ(delivered->bytes, bytes.size());
    EXPECT_FALSE(outbox.acknowledge(1, FrameKind::kFirstMessage, 7, 5, i)) << "a second time";
  }
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, RefusesWhatBreaksExactlyOnce) {
  Outbox outbox = outbox_with_window(100);
  outbox.post(1, slice(5, 1, 0));
  EXPECT_THROW(outbox.post(1, slice(5, 1, 0)), InternalError) << "posted twice";
  EXPECT_THROW(outbox.post(1, slice(5, 1, kStepsApart)), InternalError) << "too far ahead";
  EXPECT_THROW(outbox.post(0, slice(5, 1)), InternalError) << "to itself";
  EXPECT_THROW(outbox.post(1, slice(kIdLimit, 1)), InternalError);
  outbox.post(2, slice(5, 1, kStepsApart));
  EXPECT_THROW(outbox.post(2, slice(5, 1, 0)), InternalError) << "too far back";
}

}  // namespace
}  // namespace autodist::comm
