// Jobs on the test device: the bits of the CPU's run, and no access that nothing orders, on many
// schedules.

#include <gtest/gtest.h>

#include <cctype>
#include <stdexcept>
#include <string>

#include "autodist/exec/device/host_copies.h"
#include "autodist/exec/device/staging.h"
#include "tests/device/jobs.h"
#include "tests/library_collectives.h"

namespace autodist::test_device {
namespace {

using testing_jobs::Parameters;

constexpr std::uint64_t kSchedules = 9;
constexpr std::uint64_t kSlowSchedules = 400;

bool is_slow() {
  const std::string suite = testing::UnitTest::GetInstance()->current_test_suite()->name();
  return suite.rfind("Slow", 0) == 0;
}

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

std::vector<DeviceJob> jobs() {
  std::vector<DeviceJob> all;
  for (const char* builder : {"PS", "AllReduce", "AllReduce:update_at=owner",
                              "AllReduce:algorithm=library", "PartitionedPS"}) {
    for (const std::uint32_t ranks : {1U, 2U, 4U}) all.push_back({"digits", builder, ranks});
  }
  for (const char* model : {"gpt-small", "resnet-small", "ncf-small"}) {
    for (const char* builder : {"PSLoadBalancing", "AllReduce"}) all.push_back({model, builder, 2});
  }
  all.push_back({"digits", "AllReduce:compressor=HorovodCompressorEF", 2});
  all.push_back({"digits", "P3:slice_parameters=300", 2});
  all.push_back({"digits", "PS", 2, 2});
  all.push_back({"digits", "AllReduce", 2, 2});
  return all;
}

class OnTheDevice : public testing::TestWithParam<DeviceJob> {};

TEST_P(OnTheDevice, JobsHaveTheBitsOfTheCpu) {
  const DeviceJob& job = GetParam();
  if (testing_jobs::is_left_out(job.builder)) GTEST_SKIP() << "this build has no Gloo";
  const Parameters cpu = train(job, false);
  const std::uint64_t schedules = is_slow() ? kSlowSchedules : kSchedules;
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    begin({seed});
    const Use before = use();
    const Parameters there = train(job, true);
    EXPECT_EQ(use().device_bytes, before.device_bytes) << "schedule " << seed;
    EXPECT_EQ(use().pinned_bytes, before.pinned_bytes) << "schedule " << seed;
    EXPECT_TRUE(equal(there, cpu)) << "schedule " << seed;
    for (const std::string& report : reports())
      ADD_FAILURE() << "schedule " << seed << ": " << report;
    EXPECT_GT(use().ops, 0);
    if (HasFailure()) return;
  }
}

// Which version a step reads is a matter of time.
TEST(StaleJobs, AreOrderedOnTheDevice) {
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    begin({seed});
    train({"digits", "PS:staleness=1", 2}, true);
    for (const std::string& report : reports()) ADD_FAILURE() << report;
  }
}

std::string test_name(const testing::TestParamInfo<DeviceJob>& test) {
  std::string name = name_of(test.param);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Schedules, OnTheDevice, testing::ValuesIn(jobs()), test_name);
INSTANTIATE_TEST_SUITE_P(SlowSchedules, OnTheDevice, testing::ValuesIn(jobs()), test_name);

}  // namespace
}  // namespace autodist::test_device
