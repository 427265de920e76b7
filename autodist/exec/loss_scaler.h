// Loss scaling at one rank: the scale of the next step, and whose updates are skipped. Fed with the
// flags of all ranks, one step after the other; everybody who updates asks it.

#pragma once

#include <cstdint>
#include <optional>

#include "autodist/exec/signal.h"
#include "autodist/ir/loss_scaling.h"

namespace autodist::exec {

// Any thread. Knows the two newest steps: nobody asks about an older one, since no rank begins a
// step before all flags of the previous step are in.
class LossScaler {
 public:
  // Without a scaling no step is ever skipped, and all are known. `signal` outlives it.
  LossScaler(std::optional<ir::LossScaling> scaling, std::uint64_t first_step, Signal& signal);

  [[nodiscard]] bool is_on() const { return scaling_.has_value(); }

  // All flags of `step` are in. REQUIRES: step by step, from the first.
  void decide(std::uint64_t step, bool overflow) AD_ASSERTS_HELD(signal_);

  // Whether decide() was called for this step, or it lies before the first.
  [[nodiscard]] bool is_decided(std::uint64_t step) const AD_ASSERTS_HELD(signal_);
  // Whether it is skipped. REQUIRES: is_decided.
  [[nodiscard]] bool skips(std::uint64_t step) const AD_EXCLUDES(signal_);
  // Updates before that of `step`: what a rule's bias correction counts. REQUIRES: the steps before
  // it are decided.
  [[nodiscard]] std::int64_t updates_before(std::uint64_t step) const AD_EXCLUDES(signal_);

  // Of the next step, after all that are decided.
  [[nodiscard]] ir::LossScale scale() const AD_EXCLUDES(signal_);
  // From a checkpoint, before the first step.
  void set_scale(const ir::LossScale& scale) AD_EXCLUDES(signal_);

 private:
  struct Decision {
    bool skipped = false;
    std::int64_t skipped_before = 0;
  };

  const std::optional<ir::LossScaling> scaling_;
  Signal& signal_;
  ir::LossScale scale_ AD_GUARDED_BY(signal_);
  std::uint64_t next_ AD_GUARDED_BY(signal_);     // the first step that is not decided
  Decision decisions_[2] AD_GUARDED_BY(signal_);  // by parity of the step
};

}  // namespace autodist::exec
