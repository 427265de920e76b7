// Time as something that is passed in, so that every run can be replayed and the simulator can hold
// a virtual clock.

#pragma once

#include <time.h>

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
