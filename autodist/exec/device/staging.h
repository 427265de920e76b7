// Host memory that a device copies from and to by itself (pinned), lent out and taken back from
// step to step.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <functional>
#include <memory>

#include "autodist/base/units.h"

namespace autodist::exec {

// Any thread.
class Staging {
 public:
  // Holds at most `limit` of pinned memory, lent out and kept together, in pieces of powers of two.
  // Of a CPU it lends ordinary memory.
  Staging(torch::Device device, Bytes limit);

  // A row-major host tensor of arbitrary contents, whose memory comes back when the last copy of
  // the handle is gone. Beyond the limit it is ordinary memory, to which copies block: a rank never
  // waits for memory that another one's progress would free.
  [[nodiscard]] torch::Tensor take(torch::IntArrayRef sizes, torch::ScalarType type);

  [[nodiscard]] torch::Device device() const { return device_; }

  // Pinned memory that is lent out or kept.
  [[nodiscard]] Bytes pinned() const;

 private:
  class Pool;
  torch::Device device_;
  std::shared_ptr<Pool> pool_;
};

// The values of a tensor, once the caller's queue has made them; itself where it is on the host.
// The caller sleeps until then and calls `look`: what that throws ends the wait.
torch::Tensor on_host(const torch::Tensor& tensor, Staging& staging,
                      const std::function<void()>& look);

// Where pinned memory of a kind of device comes from when libtorch does not know (1.13 knows CUDA's
// alone). Before the first Staging of this kind; null: libtorch says.
void set_pinned_allocator(torch::DeviceType kind, c10::Allocator* allocator);

}  // namespace autodist::exec
