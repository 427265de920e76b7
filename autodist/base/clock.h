// Time as something that is passed in, so that every run can be replayed and the simulator can hold
// a virtual clock.

#pragma once

#include <time.h>

#include <chrono>
#include <cmath>
#include <cstdint>

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

// For a library that counts whole ones: rounded up, so that nobody waits for less.
inline std::chrono::milliseconds to_milliseconds(Seconds seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds.value * 1e3)));
}

// A time from now on, by the machine's monotonic clock.
class Deadline {
 public:
  explicit Deadline(Seconds limit) : end_(SteadyClock().now() + limit) {}
  [[nodiscard]] bool has_passed() const { return SteadyClock().now() > end_; }

 private:
  Seconds end_;
};

// CPU time of this process.
class ProcessCpuClock final : public Clock {
 public:
  [[nodiscard]] Seconds now() const override {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return Seconds(static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9);
  }
};

}  // namespace autodist
