// Whether tasks on equal processors can end by a deadline: depth first over time, to the end or to
// a count of nodes.

#pragma once

#include <cstdint>
#include <functional>

#include "autodist/search/placement/processors.h"
#include "autodist/search/placement/windows.h"

namespace autodist::search::placement {

struct DeadlineOutcome {
  enum class Verdict : std::uint8_t { kMet, kImpossible, kUndecided };
  Verdict verdict = Verdict::kUndecided;
  Starts starts;  // of a schedule that meets the deadline
  std::uint64_t nodes = 0;
};

// At every time at which a task ends, each ready task starts or waits for the next such time (some
// optimal schedule has this form). A branch dies where a window closes, where the idle time that is
// left for it is used up, where an interval up to some time holds too much, or where a state has
// failed before that had started the same tasks and ended none of them later. `windows`: consistent
// under the deadline. `nodes`: at most so many.
DeadlineOutcome search_deadline(const ProcessorProblem& problem, const Windows& windows,
                                Ticks deadline, std::uint64_t nodes,
                                const std::function<bool()>& stop);

}  // namespace autodist::search::placement
