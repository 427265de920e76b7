#include "autodist/search/placement/windows.h"

#include <algorithm>
#include <limits>

#include "autodist/base/sort_unique.h"

namespace autodist::search::placement {
namespace {

Ticks divided_up(Ticks work, std::size_t by) {
  const auto divisor = static_cast<Ticks>(by);
  return (work + divisor - 1) / divisor;
}

}  // namespace

Closure::Closure(const ProcessorProblem& problem) {
  const std::size_t count = problem.size();
  ancestors_.resize(count);
  descendants_.resize(count);
  constexpr Ticks kNone = -1;
  std::vector<Ticks> between(count);
  for (std::uint32_t from = 0; from < count; ++from) {
    std::fill(between.begin(), between.end(), kNone);
    for (const std::uint32_t child : problem.children[from]) between[child] = 0;
    for (std::uint32_t i = from + 1; i < count; ++i) {
      if (between[i] == kNone) continue;
      for (const std::uint32_t child : problem.children[i]) {
        between[child] = std::max(between[child], between[i] + problem.time[i]);
      }
      ancestors_[i].push_back({from, between[i]});
      descendants_[from].push_back({i, between[i]});
    }
  }
}

Windows::Windows(const ProcessorProblem& problem, const Closure& closure, Ticks deadline)
    : problem_(&problem), closure_(&closure), earliest_(problem.size(), 0) {
  for (const Ticks time : problem.time) latest_.push_back(deadline - time);
}

bool Windows::raise_earliest(std::uint32_t task, Ticks to, bool& changed) {
  if (to <= earliest_[task]) return true;
  changed = true;
  earliest_[task] = to;
  return to <= latest_[task];
}

bool Windows::lower_latest(std::uint32_t task, Ticks to, bool& changed) {
  if (to >= latest_[task]) return true;
  changed = true;
  latest_[task] = to;
  return earliest_[task] <= to;
}

// A task starts after all its ancestors: those that cannot start before t take at least their work
// divided by the processors from t on, and then the shortest of their ways to the task.
bool Windows::heads_and_tails(bool& changed) {
  const auto count = static_cast<std::uint32_t>(problem_->size());
  struct Piece {
    Ticks release;
    Ticks time;
    Ticks between;
  };
  std::vector<Piece> pieces;
  // The end of all pieces, and what follows them.
  const auto pushed = [&]() {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.release > b.release; });
    Ticks most = std::numeric_limits<Ticks>::min();
    Ticks work = 0;
    Ticks least = std::numeric_limits<Ticks>::max();
    for (const Piece& piece : pieces) {
      work += piece.time;
      least = std::min(least, piece.between);
      most = std::max(most, piece.release + divided_up(work, problem_->processors) + least);
      most = std::max(most, piece.release + piece.time + piece.between);
    }
    return most;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    pieces.clear();
    for (const Closure::Relative& each : closure_->ancestors(i)) {
      pieces.push_back({earliest_[each.task], problem_->time[each.task], each.between});
    }
    if (!raise_earliest(i, pushed(), changed)) return false;
  }
  for (std::uint32_t i = count; i-- > 0;) {
    pieces.clear();
    for (const Closure::Relative& each : closure_->descendants(i)) {
      // Mirrored at 0: the latest end of a descendant is its release.
      pieces.push_back({-(latest_[each.task] + problem_->time[each.task]),
                        problem_->time[each.task], each.between});
    }
    if (pieces.empty()) continue;
    if (!lower_latest(i, -pushed() - problem_->time[i], changed)) return false;
  }
  return true;
}

bool Windows::energetic(bool& changed) {
  const auto count = static_cast<std::uint32_t>(problem_->size());
  const auto capacity = static_cast<Ticks>(problem_->processors);
  std::vector<Ticks> begins;
  std::vector<Ticks> ends;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (problem_->time[i] == 0) continue;
    begins.push_back(earliest_[i]);
    begins.push_back(latest_[i]);
    ends.push_back(latest_[i] + problem_->time[i]);
    ends.push_back(earliest_[i] + problem_->time[i]);
  }
  sort_unique(begins);
  sort_unique(ends);
  std::vector<Ticks> part(count);
  for (const Ticks begin : begins) {
    for (const Ticks end : ends) {
      if (end <= begin) continue;
      const Ticks length = end - begin;
      Ticks sum = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const Ticks time = problem_->time[i];
        // The least of it that lies inside, wherever it starts.
        const Ticks left = earliest_[i] + time - begin;
        const Ticks right = end - latest_[i];
        part[i] = std::max<Ticks>(0, std::min(std::min(time, length), std::min(left, right)));
        sum += part[i];
      }
      if (sum > capacity * length) return false;
      for (std::uint32_t i = 0; i < count; ++i) {
        const Ticks time = problem_->time[i];
        if (time == 0) continue;
        const Ticks room = capacity * length - (sum - part[i]);
        // As far left as it goes it would take `early` of the interval.
        const Ticks early =
            std::min(std::min(time, length), std::max<Ticks>(0, earliest_[i] + time - begin));
        if (early > room && earliest_[i] < end && !raise_earliest(i, end - room, changed)) {
          return false;
        }
        const Ticks late = std::min(std::min(time, length), std::max<Ticks>(0, end - latest_[i]));
        if (late > room && latest_[i] + time > begin &&
            !lower_latest(i, begin + room - time, changed)) {
          return false;
        }
      }
    }
  }
  return true;
}

bool Windows::consistent() {
  for (bool changed = true; changed;) {
    for (bool shrunk = true; shrunk;) {
      shrunk = false;
      if (!heads_and_tails(shrunk)) return false;
    }
    changed = false;
    if (!energetic(changed)) return false;
  }
  return true;
}

bool Windows::shaved(std::uint64_t& budget) {
  if (!consistent()) return false;
  const auto count = static_cast<std::uint32_t>(problem_->size());
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (problem_->time[i] == 0 || earliest_[i] == latest_[i]) continue;
      for (const bool left : {true, false}) {
        if (budget == 0) return true;
        --budget;
        Windows trial = *this;
        if (left) {
          trial.latest_[i] = trial.earliest_[i];
        } else {
          trial.earliest_[i] = trial.latest_[i];
        }
        if (trial.consistent()) continue;
        const bool possible = left ? raise_earliest(i, earliest_[i] + 1, changed)
                                   : lower_latest(i, latest_[i] - 1, changed);
        if (!possible || !consistent()) return false;
      }
    }
  }
  return true;
}

}  // namespace autodist::search::placement
