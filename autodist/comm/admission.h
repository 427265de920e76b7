// Exactly once: remembers which payload frames of one peer have come, and forgets old steps.

#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "autodist/comm/transport.h"

namespace autodist::comm {

// All slices that travel between two ranks at a time, waiting and unacknowledged ones included,
// belong to steps that lie less than this apart. (A rank runs ahead by its staleness, plus one.)
inline constexpr std::uint64_t kStepsApart = 64;

// Slice numbers above this are refused: what a peer sends must not decide how much we remember.
inline constexpr SliceNumber kSliceLimit = 1u << 20;

// The frames of one kind from one peer. Memory: one bit per slice and step over kStepsApart steps.
class Admission {
 public:
  // True the first time for each (step, slice). A frame kStepsApart or more steps older than the
  // newest is a late copy: senders keep to kStepsApart. REQUIRES: slice < kSliceLimit.
  [[nodiscard]] bool admit(std::uint64_t step, SliceNumber slice);
  // Whether admit() would refuse it.
  [[nodiscard]] bool came(std::uint64_t step, SliceNumber slice) const;

 private:
  std::uint64_t oldest_ = 0;            // step of came_.front()
  std::deque<std::vector<bool>> came_;  // by step, then by slice
};

}  // namespace autodist::comm
