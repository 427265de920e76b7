#include "autodist/exec/loss_scaler.h"

#include <gtest/gtest.h>

#include "autodist/base/check.h"

namespace autodist::exec {
namespace {

void decide(LossScaler& scaler, Signal& signal, std::uint64_t step, bool overflow) {
  const MutexLock lock(signal);
  scaler.decide(step, overflow);
}

bool is_decided(const LossScaler& scaler, Signal& signal, std::uint64_t step) {
  const MutexLock lock(signal);
  return scaler.is_decided(step);
}

TEST(LossScaler, WithoutAScalingNothingIsSkipped) {
  Signal signal;
  const LossScaler scaler(std::nullopt, 3, signal);
  EXPECT_FALSE(scaler.is_on());
  EXPECT_TRUE(is_decided(scaler, signal, 7));
  EXPECT_FALSE(scaler.skips(7));
  EXPECT_EQ(scaler.updates_before(7), 7);
}

TEST(LossScaler, CountsTheUpdatesThatHappened) {
  Signal signal;
  LossScaler scaler(ir::parse_loss_scaling("dynamic:scale=8,interval=2"), 10, signal);
  scaler.set_scale({16, 1, 3});  // of the ten steps before, three were skipped
  EXPECT_TRUE(is_decided(scaler, signal, 9));
  EXPECT_FALSE(is_decided(scaler, signal, 10));
  EXPECT_EQ(scaler.updates_before(10), 7);
  decide(scaler, signal, 10, true);
  EXPECT_TRUE(scaler.skips(10));
  EXPECT_EQ(scaler.updates_before(10), 7);
  EXPECT_EQ(scaler.updates_before(11), 7);
  EXPECT_EQ(scaler.scale(), (ir::LossScale{8, 0, 4}));
  decide(scaler, signal, 11, false);
  EXPECT_TRUE(scaler.skips(10));  // still known
  EXPECT_FALSE(scaler.skips(11));
  EXPECT_EQ(scaler.updates_before(12), 8);
  decide(scaler, signal, 12, false);
  EXPECT_EQ(scaler.scale(), (ir::LossScale{16, 0, 4}));
  EXPECT_THROW(static_cast<void>(scaler.skips(10)), InternalError);
  EXPECT_THROW(decide(scaler, signal, 14, false), InternalError);
}

}  // namespace
}  // namespace autodist::exec
