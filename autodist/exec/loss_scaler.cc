#include "autodist/exec/loss_scaler.h"

#include "autodist/base/check.h"

namespace autodist::exec {

LossScaler::LossScaler(std::optional<ir::LossScaling> scaling, std::uint64_t first_step,
                       Signal& signal)
    : scaling_(scaling), signal_(signal), next_(first_step) {
  if (scaling_) scale_ = ir::first_scale(*scaling_);
}

void LossScaler::decide(std::uint64_t step, bool overflow) {
  signal_.assert_held();
  AD_CHECK(scaling_ && step == next_) << "step " << step << " is decided after " << next_;
  decisions_[step % 2] = {overflow, scale_.skipped};
  scale_ = ir::next_scale(*scaling_, scale_, overflow);
  ++next_;
}

bool LossScaler::is_decided(std::uint64_t step) const {
  signal_.assert_held();
  if (!scaling_) return true;
  return step < next_;
}

bool LossScaler::skips(std::uint64_t step) const {
  if (!scaling_) return false;
  const MutexLock lock(signal_);
  AD_CHECK(step < next_ && step + 2 >= next_) << "step " << step << ", decided up to " << next_;
  return decisions_[step % 2].skipped;
}

std::int64_t LossScaler::updates_before(std::uint64_t step) const {
  const auto steps = static_cast<std::int64_t>(step);
  if (!scaling_) return steps;
  const MutexLock lock(signal_);
  AD_CHECK(step <= next_ && step + 2 >= next_) << "step " << step << ", decided up to " << next_;
  return steps - (step == next_ ? scale_.skipped : decisions_[step % 2].skipped_before);
}

ir::LossScale LossScaler::scale() const {
  const MutexLock lock(signal_);
  return scale_;
}

void LossScaler::set_scale(const ir::LossScale& scale) {
  const MutexLock lock(signal_);
  scale_ = scale;
}

}  // namespace autodist::exec
