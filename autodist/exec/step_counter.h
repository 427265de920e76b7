// Numbers what happens several times between two steps.

#pragma once

#include <cstdint>
#include <utility>

namespace autodist::exec {

// By one thread.
class StepCounter {
 public:
  // How often it was called before with this step, since it was called with another one.
  std::uint32_t next(std::uint64_t step) {
    if (step != std::exchange(step_, step)) next_ = 0;
    return next_++;
  }

 private:
  std::uint64_t step_ = 0;
  std::uint32_t next_ = 0;
};

}  // namespace autodist::exec
