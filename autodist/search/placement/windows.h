// Where each task of a ProcessorProblem can lie when the whole must end by a deadline: windows that
// shrink until they prove that it cannot.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/placement/processors.h"

namespace autodist::search::placement {

// Longest paths and closures of a problem, computed once.
class Closure {
 public:
  explicit Closure(const ProcessorProblem& problem);

  // Tasks that must end before `task` starts (start after it ends), each with the longest path in
  // between: from the other's end to its start.
  struct Relative {
    std::uint32_t task;
    Ticks between;
  };
  [[nodiscard]] const std::vector<Relative>& ancestors(std::uint32_t task) const {
    return ancestors_[task];
  }
  [[nodiscard]] const std::vector<Relative>& descendants(std::uint32_t task) const {
    return descendants_[task];
  }

 private:
  std::vector<std::vector<Relative>> ancestors_;
  std::vector<std::vector<Relative>> descendants_;
};

// Earliest and latest starts under a deadline.
class Windows {
 public:
  // REQUIRES: both outlive this.
  Windows(const ProcessorProblem& problem, const Closure& closure, Ticks deadline);

  [[nodiscard]] Ticks earliest(std::uint32_t task) const { return earliest_[task]; }
  [[nodiscard]] Ticks latest(std::uint32_t task) const { return latest_[task]; }

  // Repeats every rule that shrinks windows until nothing changes: false proves the deadline
  // impossible.
  bool consistent();

  // consistent(), and with every task tried at the ends of its window, which is cut where the trial
  // fails; `budget` counts trials down. False proves the deadline impossible.
  bool shaved(std::uint64_t& budget);

 private:
  // Shrink a window that is wider. False when it is empty from now on.
  bool raise_earliest(std::uint32_t task, Ticks to, bool& changed);
  bool lower_latest(std::uint32_t task, Ticks to, bool& changed);

  // One pass of shrinking by precedence and by the work of ancestors and descendants.
  bool heads_and_tails(bool& changed);
  // Shrinks the windows of tasks that cannot lie at an end of theirs. False when some interval must
  // hold more work than the processors can do in it.
  bool energetic(bool& changed);

  const ProcessorProblem* problem_;
  const Closure* closure_;
  std::vector<Ticks> earliest_;
  std::vector<Ticks> latest_;
};

}  // namespace autodist::search::placement
