// When a job takes snapshots: so often that they take no more than a hundredth of its time. A value
// without clock, at the chief.

#pragma once

#include <cstdint>

#include "autodist/base/units.h"

namespace autodist::job {

class SnapshotSchedule {
 public:
  static constexpr double kShare = 0.01;
  // For each second that is measured: what the owners of the state copy, and what the steps lose
  // because their data has left the caches, is not. With a charge of 1 steps took 1.016 times as
  // long as without snapshots (docs/benchmarks/recovery.md).
  static constexpr double kCharge = 1.5;
  // The first steps of a generation allocate and warm up.
  static constexpr std::int64_t kFirst = 5;

  // Steps are counted and timed from here on.
  SnapshotSchedule(std::int64_t step, Seconds now) : step_(step), since_(now) {}

  // A snapshot after `step` steps held the job from `begin` to `end`, and the last one before it
  // took `beside` to be written beside the steps. Returns after how many steps the next is due.
  std::int64_t taken(std::int64_t step, Seconds begin, Seconds end, Seconds beside);
  // It could not be taken now, and is tried again: soon, as something else is being written; or
  // much later, as there is no room for it.
  [[nodiscard]] std::int64_t soon(std::int64_t step) const;
  [[nodiscard]] std::int64_t much_later(std::int64_t step) const;
  // Between two of them, as of the last one: so much of the training a loss can cost.
  [[nodiscard]] std::int64_t steps_apart() const { return apart_; }
  [[nodiscard]] Seconds apart() const { return Seconds{static_cast<double>(apart_) * of_step_}; }

 private:
  std::int64_t step_;
  Seconds since_;
  std::int64_t apart_ = kFirst;
  double of_step_ = 0;  // seconds
};

}  // namespace autodist::job
