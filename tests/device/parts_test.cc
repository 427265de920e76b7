// The test device itself, and the engine's parts on it, each without a job.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <stdexcept>
#include <vector>

#include "autodist/exec/device/copy_rates.h"
#include "autodist/exec/device/host_copies.h"
#include "autodist/exec/device/staging.h"
#include "tests/device/scenes.h"
#include "tests/device/test_device.h"

namespace autodist::test_device {
namespace {

TEST(TestDevice, RunsTheCpusKernelsLater) {
  begin({1, 1, std::chrono::milliseconds(2)});
  const torch::Tensor a = torch::arange(12.0).view({3, 4});
  const torch::Tensor b = torch::ones({4, 2});
  const torch::Tensor there = a.to(device()).mm(b.to(device())).relu();
  EXPECT_TRUE(there.to(torch::kCPU).equal(a.mm(b)));
  EXPECT_TRUE(reports().empty());
}

TEST(TestDevice, ReportsAReadThatNothingOrders) {
  begin({1, 0});
  const torch::Tensor a = torch::ones({8}).to(device());
  const torch::Tensor b = a + 1;
  torch::Tensor c;
  {
    const OwnQueue other;
    c = b * 2;
  }
  ASSERT_EQ(reports().size(), 1u);
  EXPECT_NE(reports()[0].find("reads what aten::add"), std::string::npos) << reports()[0];
}

// Freed memory is handed out again on its queue at once; another queue that still reads it is late.
TEST(TestDevice, ReportsMemoryThatIsFreedUnderAnotherQueuesHands) {
  begin({1, 0});
  torch::Tensor a = torch::ones({8}).to(device());
  {
    const OwnQueue other;
    const torch::Tensor b = a + 1;
    EXPECT_TRUE(reports().empty());
    a.reset();
  }
  ASSERT_EQ(reports().size(), 1u);
  EXPECT_EQ(reports()[0].rfind("freeing", 0), 0u) << reports()[0];
}

TEST(Staging, LendsPinnedMemoryUpToItsLimit) {
  begin({1, 0});
  const std::int64_t before = use().pinned_bytes;
  exec::Staging staging(device(), Bytes(2 * 4096));
  torch::Tensor first = staging.take({1024}, torch::kFloat32);
  const torch::Tensor second = staging.take({32, 32}, torch::kFloat32);
  EXPECT_EQ(staging.pinned(), Bytes(2 * 4096));
  EXPECT_EQ(use().pinned_bytes - before, 2 * 4096);
  const torch::Tensor beyond = staging.take({1024}, torch::kFloat32);
  EXPECT_EQ(use().pinned_bytes - before, 2 * 4096);
  const void* const memory = first.data_ptr();
  first.reset();
  EXPECT_EQ(staging.take({1024}, torch::kFloat32).data_ptr(), memory);
  EXPECT_EQ(staging.take({0}, torch::kFloat32).numel(), 0);
}

TEST(Staging, LendsTheSameMemoryForSizesThatVary) {
  begin({1, 0});
  exec::Staging staging(device(), Bytes(1 << 20));
  for (std::int64_t rows = 0; rows <= 64; ++rows) {
    const torch::Tensor lent = staging.take({rows, 16}, torch::kFloat32);
    EXPECT_EQ(lent.size(0), rows);
  }
  EXPECT_EQ(staging.pinned(), Bytes(512 + 1024 + 2048 + 4096));
}

TEST(Staging, TakesMemoryThatNobodyAskedForLatelyInThePlaceOfMore) {
  begin({1, 0});
  const Bytes limit(8192 + 4096);
  exec::Staging staging(device(), limit);
  torch::Tensor old = staging.take({8192}, torch::kUInt8);
  torch::Tensor recent = staging.take({4096}, torch::kUInt8);
  const void* const memory = recent.data_ptr();
  old.reset();
  recent.reset();
  EXPECT_EQ(staging.pinned(), limit);
  const torch::Tensor other = staging.take({2048}, torch::kUInt8);
  EXPECT_EQ(staging.pinned(), Bytes(4096 + 2048)) << "the larger, older block goes";
  EXPECT_EQ(staging.take({4096}, torch::kUInt8).data_ptr(), memory);
}

TEST(Staging, PinsNoMoreThanItsLimitWhateverIsAskedFor) {
  begin({1, 0});
  const std::int64_t before = use().pinned_bytes;
  constexpr std::int64_t kLimit = 1 << 16;
  std::mt19937_64 random(1);
  {
    exec::Staging staging(device(), Bytes(kLimit));
    std::vector<torch::Tensor> lent(8);
    for (int i = 0; i < 2000; ++i) {
      lent[random() % lent.size()] =
          staging.take({static_cast<std::int64_t>(random() % (kLimit / 2))}, torch::kUInt8);
      ASSERT_LE(staging.pinned(), Bytes(kLimit));
    }
    EXPECT_GT(staging.pinned(), Bytes(kLimit / 2));
  }
  EXPECT_EQ(use().pinned_bytes, before);
}

TEST(CopyRates, AreOfBothWays) {
  begin({1, 0});
  const std::int64_t before = use().pinned_bytes;
  const exec::CopyRates rates = exec::measure_copies(device().str(), Bytes(1 << 16));
  EXPECT_GT(rates.to_device, 0);
  EXPECT_GT(rates.to_host, 0);
  EXPECT_GT(rates.both, 0);
  EXPECT_EQ(use().pinned_bytes, before);
  EXPECT_TRUE(reports().empty());
}

TEST(HostCopies, BringValuesOfThenAndCallsInBetween) {
  begin({1, 1});
  const OwnQueue own;
  exec::Staging staging(device(), Bytes(1 << 20));
  std::vector<double> seen;
  exec::HostCopies copies(device(), staging, [](const std::exception_ptr&) { FAIL(); });
  const auto note = [&](const exec::HostCopies::Tensors& on_host) {
    seen.push_back(on_host.empty() ? -1 : on_host.front().item<double>());
  };
  const torch::Tensor one = torch::ones({}).to(device());
  copies.bring(exec::HostCopies::kBeforeAll, {one * 10}, note);
  for (int i = 0; i < 3; ++i) copies.bring(Seconds(3.0 - i), {one * i}, note);
  copies.bring(exec::HostCopies::kAfterAll, {}, note);
  copies.drain();
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen.front(), 10);
  EXPECT_EQ(seen.back(), -1);
  EXPECT_EQ(seen[1] + seen[2] + seen[3], 3);
  EXPECT_TRUE(reports().empty());
}

TEST(HostCopies, EndWithTheFirstError) {
  begin({1, 0});
  exec::Staging staging(device(), Bytes(1 << 20));
  int errors = 0;
  int calls = 0;
  exec::HostCopies copies(device(), staging, [&](const std::exception_ptr&) { ++errors; });
  copies.bring(Seconds(1), {}, [](const auto&) { throw std::runtime_error("planted"); });
  copies.drain();
  copies.bring(Seconds(1), {}, [&](const auto&) { ++calls; });
  copies.drain();
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(calls, 0);
}

// The chief's states are read, changed and written back between two updates.
TEST(StatesOnTheDevice, ComeToTheHostAndBack) {
  begin({1});
  Variables variables(program::UpdateAt::kEveryRank);
  constexpr ir::VariableId wide = Variables::kWide;
  const torch::Tensor before = variables.all().tensor(wide).to(torch::kCPU);
  EXPECT_TRUE(variables.all().is_updated_on_device(wide));
  variables.update(0);
  exec::UpdateState& state = variables.all().states(wide).at(0);
  double* const momentum = static_cast<double*>(state.data(0));
  EXPECT_EQ(momentum[29], 1);
  std::fill_n(momentum, 30, 4.0);
  variables.all().put_states(wide);
  variables.update(1);  // by 4 / 2 + 1
  EXPECT_TRUE(torch::allclose(variables.all().dense(wide), before - 4));
  EXPECT_EQ(static_cast<double*>(variables.all().states(wide).at(0).data(0))[0], 3);
  EXPECT_TRUE(reports().empty());
}

}  // namespace
}  // namespace autodist::test_device
