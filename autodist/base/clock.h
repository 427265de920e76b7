// Time as something that is passed in, so that every run can be replayed and the simulator can hold
// a virtual clock.

#pragma once

#include <chrono>

#include "autodist/base/units.h"

namespace autodist {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; the origin is arbitrary but fixed for the clock's life. Safe from any thread.
  [[nodiscard]] virtual Seconds now() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Seconds now() const override {
    return Seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
};

}  // namespace autodist
