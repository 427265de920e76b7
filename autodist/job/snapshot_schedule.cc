#include "autodist/job/snapshot_schedule.h"

#include <algorithm>
#include <cmath>

namespace autodist::job {

std::int64_t SnapshotSchedule::taken(std::int64_t step, Seconds begin, Seconds end,
                                     Seconds beside) {
  const Seconds cost = end - begin + beside;
  const std::int64_t steps = std::max<std::int64_t>(1, step - step_);
  of_step_ = std::max(1e-9, (begin - since_).value / static_cast<double>(steps));
  step_ = step;
  since_ = end;
  apart_ = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(kCharge * cost.value / (kShare * of_step_))));
  return step + apart_;
}

std::int64_t SnapshotSchedule::soon(std::int64_t step) const {
  return step + std::max<std::int64_t>(1, apart_ / 8);
}

std::int64_t SnapshotSchedule::much_later(std::int64_t step) const { return step + 8 * apart_; }

}  // namespace autodist::job
