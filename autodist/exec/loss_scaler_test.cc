#include "autodist/exec/loss_scaler.h"

#include <gtest/gtest.h>

#include "autodist/base/check.h"

namespace autodist::exec {
namespace {

TEST(LossScaler, WithoutAScalingNothingIsSkipped) {
  const LossScaler scaler(std::nullopt, 3);
  EXPECT_FALSE(scaler.is_on());
  EXPECT_TRUE(scaler.is_decided(7));
  EXPECT_FALSE(scaler.skips(7));
  EXPECT_EQ(scaler.updates_before(7), 7);
}

TEST(LossScaler, CountsTheUpdatesThatHappened) {
  LossScaler scaler(ir::parse_loss_scaling("dynamic:scale=8,interval=2"), 10);
  scaler.set_scale({16, 1, 3});  // of the ten steps before, three were skipped
  EXPECT_TRUE(scaler.is_decided(9));
  EXPECT_FALSE(scaler.is_decided(10));
  EXPECT_EQ(scaler.updates_before(10), 7);
  scaler.decide(10, true);
  EXPECT_TRUE(scaler.skips(10));
  EXPECT_EQ(scaler.updates_before(10), 7);
  EXPECT_EQ(scaler.updates_before(11), 7);
  EXPECT_EQ(scaler.scale(), (ir::LossScale{8, 0, 4}));
  scaler.decide(11, false);
  EXPECT_TRUE(scaler.skips(10));  // still known
  EXPECT_FALSE(scaler.skips(11));
  EXPECT_EQ(scaler.updates_before(12), 8);
  scaler.decide(12, false);
  EXPECT_EQ(scaler.scale(), (ir::LossScale{16, 0, 4}));
  EXPECT_THROW(static_cast<void>(scaler.skips(10)), InternalError);
  EXPECT_THROW(scaler.decide(14, false), InternalError);
}

}  // namespace
}  // namespace autodist::exec
