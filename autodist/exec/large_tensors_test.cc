#include "autodist/exec/large_tensors.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace autodist::exec {
namespace {

constexpr std::size_t kLarge = 32 << 20;

TEST(LargeTensors, ComeBackInTheSamePages) {
  const torch::Tensor before = torch::ones({1 << 23});  // 32 MiB, from where they came before
  keep_large_tensors(kLarge);
  keep_large_tensors(kLarge);
  const void* first = nullptr;
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor large = torch::full({1 << 23}, step, torch::kFloat32);
    if (first == nullptr) first = large.data_ptr();
    EXPECT_EQ(large.data_ptr(), first);
    EXPECT_EQ((before + large).sum().item<double>(), (1 + step) * double{1 << 23});
  }
  const torch::Tensor small = torch::ones({5});
  EXPECT_EQ(small.sum().item<float>(), 5);
}

TEST(LargeTensors, AreFreedByTheRawDeleterToo) {
  keep_large_tensors(kLarge);
  for (const std::size_t bytes : {std::size_t{64}, kLarge}) {
    void* const memory = c10::GetCPUAllocator()->raw_allocate(bytes);
    ASSERT_NE(memory, nullptr);
    c10::GetCPUAllocator()->raw_deallocate(memory);
  }
}

TEST(LargeTensors, AForkedProcessTakesItsOwn) {
  keep_large_tensors(kLarge);
  const torch::Tensor shared = torch::zeros({1 << 23});
  std::atomic<bool> stop{false};
  std::thread busy([&stop] {
    while (!stop) c10::GetCPUAllocator()->allocate(kLarge);
  });
  int failures = 0;
  for (int child = 0; child < 50; ++child) {
    const pid_t id = ::fork();
    if (id == 0) {
      ::alarm(20);  // a child that waits for a thread it does not have
      const c10::DataPtr own = c10::GetCPUAllocator()->allocate(kLarge);
      *static_cast<char*>(own.get()) = 1;
      *static_cast<char*>(shared.data_ptr()) = 1;
      ::_exit(own ? 0 : 1);
    }
    int status = 0;
    ::waitpid(id, &status, 0);
    if (status != 0) ++failures;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(*static_cast<char*>(shared.data_ptr()), 0);
}

}  // namespace
}  // namespace autodist::exec
