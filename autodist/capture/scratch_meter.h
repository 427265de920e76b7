// What the kernels of ops allocate for themselves. Private to capture.

#pragma once

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace autodist::capture {

// While it lives, hears of what the calling thread allocates on a kind of device. It stands where a
// profiler would: nobody may ask the thread for its profiler meanwhile.
class ScratchMeter {
 public:
  explicit ScratchMeter(c10::Device device);

  void begin_op();
  // Bytes that the op held at its highest beside what it leaves behind; 0 where a profiler of the
  // user listens in this place.
  [[nodiscard]] std::int64_t end_op() const;

 private:
  struct Listener;

  std::shared_ptr<Listener> listener_;
  std::optional<c10::DebugInfoGuard> listens_;  // nothing: somebody else does
};

}  // namespace autodist::capture
