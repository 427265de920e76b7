// Brings what a device has computed to the host beside its work: most urgent first, and few at a
// time, so that a gradient that turns out to be needed earlier does not wait behind all others.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "autodist/base/mutex.h"
#include "autodist/base/units.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/device/staging.h"

namespace autodist::exec {

class HostCopies {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Then = std::function<void(const Tensors& on_host)>;

  // Urgencies beside the times at which variables are needed.
  static constexpr Seconds kBeforeAll{-1};
  static constexpr Seconds kAfterAll{1e30};

  // `staging` outlives it. `on_error` gets what a copy or a `then` throws, on the thread that
  // copies; nothing is brought after it.
  HostCopies(torch::Device device, Staging& staging,
             std::function<void(const std::exception_ptr&)> on_error);
  ~HostCopies();  // drops what is not there yet
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // By the compute thread: calls `then` with the values that the tensors have at this point of its
  // queue, row-major (a sparse one as it is), on the thread that copies; from a CPU with the
  // tensors themselves, before it returns. In the order of (needed, call), but what is complete
  // goes before what is not. Nobody writes to the tensors' memory any more.
  void bring(Seconds needed, Tensors tensors, Then then);

  // Until nothing that is needed by then is on its way; at once after an error.
  void drain(Seconds needed = kAfterAll);

 private:
  struct Copy {
    Seconds needed;
    std::uint64_t call = 0;
    Tensors tensors;
    Then then;
    Mark complete;  // on the device
    Tensors on_host{};
    Mark copied{};
    Bytes bytes{};
  };
  struct MoreUrgent {
    bool operator()(const Copy& a, const Copy& b) const {
      return a.needed != b.needed ? a.needed < b.needed : a.call < b.call;
    }
  };

  [[nodiscard]] bool has_any(Seconds needed) const AD_REQUIRES(mutex_);
  void work();
  void copy_until_stopped();
  void begin_copies() AD_REQUIRES(mutex_);
  [[nodiscard]] torch::Tensor copy_of(const torch::Tensor& tensor) const;

  const torch::Device device_;
  Staging& staging_;
  const std::function<void(const std::exception_ptr&)> on_error_;
  const Queue queue_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::uint64_t calls_ AD_GUARDED_BY(mutex_) = 0;
  std::deque<Copy> handed_in_ AD_GUARDED_BY(mutex_);  // in the order of the compute queue
  std::multiset<Copy, MoreUrgent> complete_ AD_GUARDED_BY(mutex_);
  std::deque<Copy> under_way_ AD_GUARDED_BY(mutex_);       // in the order of the copying queue
  std::optional<Seconds> delivers_ AD_GUARDED_BY(mutex_);  // a `then` runs, of this urgency
  bool stopping_ AD_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // none for a CPU
};

}  // namespace autodist::exec
