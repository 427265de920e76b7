// Where the two generations of libtorch that we build against (1.13 and 2.x) differ.
//
// Private to capture.

#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "autodist/capture/training_step.h"

// Since 2.4 CUDA's generators can share a state, also while a graph is recorded.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
#define AUTODIST_GENERATORS_SHARE_STATES
#endif

namespace autodist::capture {

// Below every autograd key, above every backend, reserved for code outside of libtorch; there in
// both generations.
constexpr c10::DispatchKey kCaptureKey = c10::DispatchKey::Fake;

// Of the bytes that an allocator has given out in all.
#if TORCH_VERSION_MAJOR >= 2
using AllocatedTotal = std::size_t;
#else
using AllocatedTotal = std::int64_t;
#endif

// What libtorch carries per thread and hands on to autograd's threads has a kind. Code outside of
// libtorch may make one of its own where it is a class; where it is an enumeration, this one is not
// used by libtorch itself outside of its tests.
template <typename Kind = c10::DebugInfoKind>
Kind recorder_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::TEST_INFO_2;
  } else {
    static constexpr std::string_view kName = "autodist";
    return Kind(&kName);
  }
}

// Seconds from one mark of a queue to another, by the device's clock, after both were reached;
// nothing where this libtorch, or this kind of device, does not say. Event: libtorch's, with times.
template <typename Event>
std::optional<double> seconds_between([[maybe_unused]] const Event& first,
                                      [[maybe_unused]] const Event& second) {
#if TORCH_VERSION_MAJOR >= 2
  constexpr double kMillisecond = 1e-3;
  try {
    return first.elapsedTime(second) * kMillisecond;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
#else
  return std::nullopt;
#endif
}

// While it lives, the process's generator draws where `own` stands, and moves it on. The caller is
// alone with both.
class LentGenerator {
 public:
  LentGenerator(at::Generator shared, at::Generator own)
      : shared_(std::move(shared)), own_(std::move(own)) {
#ifdef AUTODIST_GENERATORS_SHARE_STATES
    if (shared_.device().is_cuda()) {
      before_ = shared_.graphsafe_get_state();
      shared_.graphsafe_set_state(own_);
      return;
    }
#endif
    outer_ = shared_.get_state();
    shared_.set_state(own_.get_state());
  }
  ~LentGenerator() {
#ifdef AUTODIST_GENERATORS_SHARE_STATES
    if (before_.defined()) {
      shared_.graphsafe_set_state(before_);
      return;
    }
#endif
    own_.set_state(shared_.get_state());
    shared_.set_state(outer_);
  }
  LentGenerator(const LentGenerator&) = delete;
  LentGenerator& operator=(const LentGenerator&) = delete;

 private:
  at::Generator shared_;
  at::Generator own_;
  at::Tensor outer_;      // what the process's stood at
  at::Generator before_;  // what outer_ is, where generators take each other's state as it is
};

}  // namespace autodist::capture
