#include "autodist/exec/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace autodist::exec {
namespace {

constexpr std::size_t kLarge = 32 << 20;

TEST(TensorMemory, LargeTensorsComeBackInTheSamePages) {
  const torch::Tensor before = torch::ones({1 << 23});  // 32 MiB, from where they came before
  take_tensor_memory(kLarge);
  take_tensor_memory(kLarge);
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

TEST(TensorMemory, IsFreedByTheRawDeleterToo) {
  take_tensor_memory(kLarge);
  for (const std::size_t bytes : {std::size_t{64}, kLarge}) {
    void* const memory = c10::GetCPUAllocator()->raw_allocate(bytes);
    ASSERT_NE(memory, nullptr);
    c10::GetCPUAllocator()->raw_deallocate(memory);
  }
}

// By posix_memalign() the tensor in between lies elsewhere each time.
TEST(TensorMemory, AGapBetweenSmallTensorsIsFoundAgain) {
  take_tensor_memory(kLarge);
  for (const std::int64_t bytes : {20'000, 30'016, 100'001}) {
    const auto make = [&] { return torch::zeros({bytes}, torch::kByte); };
    const torch::Tensor before = make();
    torch::Tensor between = make();
    const torch::Tensor behind = make();
    for (int step = 0; step < 3; ++step) {
      const void* const memory = between.data_ptr();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0U);
      between = torch::Tensor();
      between = make();
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory aside
      EXPECT_EQ(between.data_ptr(), memory);
#endif
    }
  }
}

TEST(TensorMemory, AForkedProcessTakesItsOwn) {
  take_tensor_memory(kLarge);
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
