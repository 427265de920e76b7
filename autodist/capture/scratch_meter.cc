#include "autodist/capture/scratch_meter.h"

#include <c10/core/Allocator.h>

#include <algorithm>

#include "autodist/capture/torch_version.h"

namespace autodist::capture {

// libtorch's allocators tell who stands in the place of a profiler.
struct ScratchMeter::Listener : c10::MemoryReportingInfoBase {
  explicit Listener(c10::DeviceType kind) : kind(kind) {}

  // `size` is below zero where memory is let go of.
  void reportMemoryUsage(void* /*where*/, std::int64_t size, AllocatedTotal /*allocated*/,
                         AllocatedTotal /*reserved*/, c10::Device device) override {
    if (device.type() != kind) return;
    held += size;
    highest = std::max(highest, held);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  c10::DeviceType kind;
  std::int64_t held = 0;  // since the op began
  std::int64_t highest = 0;
};

ScratchMeter::ScratchMeter(c10::Device device)
    : listener_(std::make_shared<Listener>(device.type())) {
  const auto place = c10::DebugInfoKind::PROFILER_STATE;
  if (c10::ThreadLocalDebugInfo::get(place) == nullptr) listens_.emplace(place, listener_);
}

void ScratchMeter::begin_op() {
  listener_->held = 0;
  listener_->highest = 0;
}

std::int64_t ScratchMeter::end_op() const {
  return listener_->highest - std::max<std::int64_t>(0, listener_->held);
}

}  // namespace autodist::capture
