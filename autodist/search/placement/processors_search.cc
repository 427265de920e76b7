// The searches of processors.h: bounds by windows, randomised lists, branch and bound.

#include <algorithm>
#include <numeric>

#include "autodist/base/check.h"
#include "autodist/search/placement/deadline_search.h"
#include "autodist/search/placement/processors.h"
#include "autodist/search/placement/random.h"
#include "autodist/search/placement/windows.h"

namespace autodist::search::placement {
namespace {

constexpr std::uint64_t kSchedulesBetweenChecks = 256;
constexpr std::uint64_t kShavingTrials = 2000;

// How many tasks run at every time.
class Profile {
 public:
  Profile(const ProcessorProblem& problem, Ticks length)
      : problem_(problem), used_(static_cast<std::size_t>(length), 0) {}

  // The latest start at or before `at` (which is no later than the last that fits).
  [[nodiscard]] Ticks latest(std::uint32_t task, Ticks at) const {
    const Ticks time = problem_.time[task];
    Ticks free = 0;
    for (Ticks t = at + time - 1; t >= 0 && time > 0; --t) {
      free = full(t) ? 0 : free + 1;
      if (free == time) return t;
    }
    return at;  // takes no time
  }
  [[nodiscard]] Ticks earliest(std::uint32_t task, Ticks at) const {
    const Ticks time = problem_.time[task];
    Ticks free = 0;
    for (Ticks t = at; time > 0; ++t) {
      free = full(t) ? 0 : free + 1;
      if (free == time) return t - time + 1;
    }
    return at;
  }
  void put(std::uint32_t task, Ticks at, int change) {
    for (Ticks t = at; t < at + problem_.time[task]; ++t) {
      if (static_cast<std::size_t>(t) >= used_.size()) used_.resize(t + 1, 0);
      used_[t] += change;
    }
  }

 private:
  [[nodiscard]] bool full(Ticks t) const {
    return static_cast<std::size_t>(t) < used_.size() &&
           used_[t] >= static_cast<int>(problem_.processors);
  }
  const ProcessorProblem& problem_;
  std::vector<int> used_;
};

// Every task as late as it goes, then as early as it goes: never longer (Valls et al. 2005).
Starts justified(const ProcessorProblem& problem, const Starts& starts) {
  const Ticks length = length_of(problem, starts);
  std::vector<std::uint32_t> order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto end = [&](std::uint32_t i) { return starts[i] + problem.time[i]; };
  // Topological numbers break ties, so that children come before their parents.
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return end(a) != end(b) ? end(a) > end(b) : a > b;
  });
  Starts late(problem.size(), 0);
  Profile right(problem, length);
  for (const std::uint32_t i : order) {
    Ticks limit = length;
    for (const std::uint32_t child : problem.children[i]) limit = std::min(limit, late[child]);
    late[i] = right.latest(i, limit - problem.time[i]);
    right.put(i, late[i], 1);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return late[a] != late[b] ? late[a] < late[b] : a < b;
  });
  Starts early(problem.size(), 0);
  Profile left(problem, length);
  for (const std::uint32_t i : order) {
    Ticks ready = 0;
    for (const std::uint32_t parent : problem.parents[i]) {
      ready = std::max(ready, early[parent] + problem.time[parent]);
    }
    early[i] = left.earliest(i, ready);
    left.put(i, early[i], 1);
  }
  return early;
}

Starts turned_around(const ProcessorProblem& reversed, const Starts& of_reversed) {
  const Ticks length = length_of(reversed, of_reversed);
  Starts starts(of_reversed.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t same = starts.size() - 1 - i;
    starts[i] = length - of_reversed[same] - reversed.time[same];
  }
  return starts;
}

class ProcessorSearch {
 public:
  ProcessorSearch(const ProcessorProblem& problem, const ProcessorSearchOptions& options)
      : problem_(problem),
        reversed_(problem.reversed()),
        closure_(problem),
        closure_reversed_(reversed_),
        options_(options),
        random_(options.seed) {}

  ProcessorAnswer run() {
    answer_ = schedule_by_levels(problem_);
    randomise(problem_, false, options_.schedules / 4);
    randomise(reversed_, true, options_.schedules / 4);
    shave(kShavingTrials);
    decide(options_.nodes / 8);
    randomise(problem_, false, options_.schedules / 4);
    randomise(reversed_, true, options_.schedules / 4);
    shave(10 * kShavingTrials);
    decide(options_.nodes - options_.nodes / 8);
    return answer_;
  }

 private:
  [[nodiscard]] bool over() const {
    return answer_.optimal() || (options_.stop && options_.stop());
  }

  void offer(Starts starts, const char* found_by) {
    const Ticks length = length_of(problem_, starts);
    if (length >= answer_.length) return;
    answer_.length = length;
    answer_.starts = std::move(starts);
    answer_.found_by = found_by;
  }

  // A random walk over keys from the b-levels on: a few keys change, the schedule is kept when it
  // is no longer than the walk's last.
  void randomise(const ProcessorProblem& problem, bool backwards, std::uint64_t schedules) {
    const std::vector<Ticks> levels = bottom_levels(problem);
    const double spread = *std::max_element(levels.begin(), levels.end());
    std::vector<double> keys;
    std::vector<double> trial;
    Ticks last = 0;
    for (std::uint64_t done = 0; done < schedules; ++done) {
      if (done % kSchedulesBetweenChecks == 0 && over()) return;
      const bool restart = done % 4096 == 0;
      if (restart) {
        keys.assign(levels.begin(), levels.end());
        const double noise = done == 0 ? 0 : 0.3 * spread * fraction(random_);
        for (double& key : keys) key += noise * (fraction(random_) - 0.5);
      }
      trial = keys;
      const std::uint32_t changes = restart ? 0 : 1 + below(4, random_);
      for (std::uint32_t c = 0; c < changes; ++c) {
        const std::uint32_t i = below(trial.size(), random_);
        trial[i] += 0.25 * spread * (fraction(random_) - 0.5);
      }
      Starts starts = list_schedule(problem, trial);
      const Ticks length = length_of(problem, starts);
      if (!restart && length > last) continue;
      last = length;
      keys.swap(trial);
      if (length > answer_.length + spread_allowed(length)) continue;
      Starts ours = backwards ? turned_around(reversed_, starts) : std::move(starts);
      ours = justified(problem_, ours);
      offer(std::move(ours), "randomised lists");
    }
  }

  // Only schedules near the best are worth a justification.
  [[nodiscard]] static Ticks spread_allowed(Ticks length) { return 1 + length / 50; }

  void shave(std::uint64_t trials) {
    while (!over()) {
      Windows windows(problem_, closure_, answer_.bound);
      if (windows.shaved(trials)) return;
      ++answer_.bound;
    }
  }

  // Is the bound met? If it is impossible, it rises; if nobody knows, the best is attacked instead.
  void decide(std::uint64_t nodes) {
    std::uint64_t left = nodes;
    while (!over() && left > 0) {
      if (!decide_one(answer_.bound, left / 2, left)) break;
    }
    while (!over() && left > 0 && answer_.length - 1 > answer_.bound) {
      if (!decide_one(answer_.length - 1, left, left)) break;
    }
  }

  // True when it was decided, either way.
  bool decide_one(Ticks deadline, std::uint64_t nodes, std::uint64_t& left) {
    for (const bool backwards : {false, true}) {
      const ProcessorProblem& problem = backwards ? reversed_ : problem_;
      Windows windows(problem, backwards ? closure_reversed_ : closure_, deadline);
      std::uint64_t trials = kShavingTrials;
      DeadlineOutcome outcome;
      outcome.verdict = DeadlineOutcome::Verdict::kImpossible;
      if (windows.shaved(trials)) {
        outcome = search_deadline(problem, windows, deadline, nodes / 2, options_.stop);
      }
      left -= std::min(left, outcome.nodes + 1);
      if (outcome.verdict == DeadlineOutcome::Verdict::kMet) {
        offer(backwards ? turned_around(reversed_, outcome.starts) : outcome.starts,
              "branch and bound");
        return true;
      }
      if (outcome.verdict == DeadlineOutcome::Verdict::kImpossible) {
        answer_.bound = std::max(answer_.bound, deadline + 1);
        return true;
      }
    }
    return false;
  }

  const ProcessorProblem& problem_;
  ProcessorProblem reversed_;
  Closure closure_;
  Closure closure_reversed_;
  const ProcessorSearchOptions& options_;
  std::mt19937_64 random_;
  ProcessorAnswer answer_;
};

}  // namespace

Ticks processor_bound(const ProcessorProblem& problem) {
  const std::vector<Ticks> levels = bottom_levels(problem);
  const Ticks work = std::accumulate(problem.time.begin(), problem.time.end(), Ticks{0});
  const auto processors = static_cast<Ticks>(problem.processors);
  Ticks bound = std::max(*std::max_element(levels.begin(), levels.end()),
                         (work + processors - 1) / processors);
  const Closure closure(problem);
  while (!Windows(problem, closure, bound).consistent()) ++bound;
  return bound;
}

ProcessorAnswer schedule_by_levels(const ProcessorProblem& problem) {
  const std::vector<Ticks> levels = bottom_levels(problem);
  ProcessorAnswer answer;
  answer.starts = list_schedule(problem, {levels.begin(), levels.end()});
  answer.length = length_of(problem, answer.starts);
  answer.bound = processor_bound(problem);
  answer.found_by = "b-level list";
  return answer;
}

ProcessorAnswer schedule_on_processors(const ProcessorProblem& problem,
                                       const ProcessorSearchOptions& options) {
  ProcessorAnswer answer = ProcessorSearch(problem, options).run();
  const std::string fault = fault_of(problem, answer.starts);
  AD_CHECK(fault.empty()) << "a schedule that cannot be: " << fault;
  return answer;
}

}  // namespace autodist::search::placement
