#include "autodist/comm/c10d/shared_keys.h"

#include <gtest/gtest.h>

#include "autodist/comm/control.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

constexpr Seconds kLimit{20};

Frame control(ControlRole role) {
  Frame frame;
  frame.header.kind = FrameKind::kControl;
  frame.header.step = static_cast<std::uint64_t>(role);
  return frame;
}

// Rank 1 has heard of all ends and begins what comes next, before rank 2's end is here.
TEST(SharedKeys, WhatARankSendsThatHasGoneOnIsThereWhileTheKeysStillLive) {
  InProcessHub hub(3);
  const auto chief = hub.connect(0);
  const auto early = hub.connect(1);
  const auto late = hub.connect(2);
  early->send(0, control(ControlRole::kLastKey));
  early->send(0, control(ControlRole::kOpening));
  late->send(0, control(ControlRole::kLastKey));

  SharedKeys keys(*chief, kLimit);
  keys.finish();
  const auto next = chief->receive(kLimit);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->header.from, 1U);
  EXPECT_EQ(next->header.step, static_cast<std::uint64_t>(ControlRole::kOpening));
}

}  // namespace
}  // namespace autodist::comm
