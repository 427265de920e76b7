// Loss scaling at one rank: the scale of the next step, and whose updates are skipped. Fed with the
// flags of all ranks, one step after the other; everybody who updates asks it.

#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "autodist/ir/loss_scaling.h"

namespace autodist::exec {

// Any thread. Knows the two newest steps: nobody asks about an older one, since no rank begins a
// step before all flags of the one before are in.
class LossScaler {
 public:
  // Without a scaling no step is ever skipped, and all are known.
  LossScaler(std::optional<ir::LossScaling> scaling, std::uint64_t first_step);

  [[nodiscard]] bool is_on() const { return scaling_.has_value(); }

  // All flags of `step` are in. REQUIRES: step by step, from the first.
  void decide(std::uint64_t step, bool overflow);

  // Whether decide() was called for this step, or it lies before the first.
  [[nodiscard]] bool is_decided(std::uint64_t step) const;
  // Whether it is skipped. REQUIRES: is_decided.
  [[nodiscard]] bool skips(std::uint64_t step) const;
  // Updates before that of `step`: what a rule's bias correction counts. REQUIRES: the steps before
  // it are decided.
  [[nodiscard]] std::int64_t updates_before(std::uint64_t step) const;

  // Of the next step, after all that are decided.
  [[nodiscard]] ir::LossScale scale() const;
  // From a checkpoint, before the first step.
  void set_scale(const ir::LossScale& scale);

 private:
  struct Decision {
    bool skipped = false;
    std::int64_t skipped_before = 0;
  };

  const std::optional<ir::LossScaling> scaling_;
  mutable std::mutex mutex_;
  ir::LossScale scale_;
  std::uint64_t next_;     // the first step that is not decided
  Decision decisions_[2];  // by parity of the step
};

}  // namespace autodist::exec
