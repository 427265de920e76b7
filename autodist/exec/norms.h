// Sums that need parts from several owners: the joint norm of clipped gradients, and LAMB's two
// norms per variable. Each owner sends the sums of squares of its slices to everybody; whoever
// updates adds them in a fixed order, so all get the same bits.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/weighted_sum.h"
#include "autodist/protocol/job.h"

namespace autodist::exec {

using protocol::NormId;

// The share of one piece, or of one whole variable, in a norm.
struct NormPart {
  NormId norm;
  std::uint32_t part = 0;  // the order of addition
};

// Which pieces and variables have a part of which norm of protocol::JobNorms. A clip adds the
// slices' pieces in the order of the slice table, then the variables that no slice carries, in the
// order of variables.
struct NormPlan {
  // `job` is of `program`.
  NormPlan(const program::Program& program, const protocol::Job& job);

  [[nodiscard]] static NormId of(program::ClipId clip) { return NormId(clip.value); }

  std::vector<std::vector<std::optional<NormPart>>> clipped;  // per slice and piece
  std::vector<std::vector<std::optional<NormPart>>> lamb;     // per slice and piece
  std::vector<std::optional<NormPart>> whole;  // per variable, where no slice carries it
};

// As they travel. The second throws InternalError unless the frame has so many.
comm::Payload payload_of(const std::vector<SquaredSums>& sums);
std::vector<SquaredSums> sums_of(const comm::Frame& frame, std::size_t expected);

// min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ has it.
double clip_factor(double max_norm, double sum_of_squares);

// Keeps the parts. Any thread. Holds two steps at a time: nobody reaches step k + 2 before
// everybody has used the norms of step k.
class Norms {
 public:
  // By norm: how many parts it has. `signal` outlives it.
  Norms(std::vector<std::uint32_t> parts, Signal& signal);

  // Throws InternalError for a part that came twice.
  void put(std::uint64_t step, NormPart part, SquaredSums sums) AD_EXCLUDES(signal_);

  // The sum of the parts, in their order. REQUIRES: all are there, which the protocol knows.
  [[nodiscard]] SquaredSums total(std::uint64_t step, NormId norm) const AD_EXCLUDES(signal_);

 private:
  struct Entry {
    std::uint64_t step = 0;
    std::vector<SquaredSums> parts;
    std::vector<bool> present;

    [[nodiscard]] bool is_complete() const {
      return std::find(present.begin(), present.end(), false) == present.end();
    }
  };

  Signal& signal_;
  std::vector<Entry> entries_[2] AD_GUARDED_BY(signal_);  // by parity of the step
};

}  // namespace autodist::exec
