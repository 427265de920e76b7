#include "autodist/search/placement/deadline_search.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <unordered_map>

namespace autodist::search::placement {
namespace {

constexpr std::size_t kMostStates = 1 << 20;
constexpr std::size_t kMostOfOneSet = 16;
constexpr std::uint64_t kNodesBetweenChecks = 1024;

// Two independent words per task: equal sums of 128 bits are taken for equal sets.
struct SetKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const SetKey& a, const SetKey& b) {
    return a.low == b.low && a.high == b.high;
  }
};
struct HashKey {
  std::size_t operator()(const SetKey& key) const { return key.low; }
};

class Search {
 public:
  Search(const ProcessorProblem& problem, const Windows& windows, Ticks deadline,
         std::uint64_t nodes, const std::function<bool()>& stop)
      : problem_(problem),
        deadline_(deadline),
        limit_(nodes),
        stop_(stop),
        total_work_(std::accumulate(problem.time.begin(), problem.time.end(), std::int64_t{0})) {
    const std::size_t count = problem.size();
    std::mt19937_64 random(1);
    starts_.assign(count, -1);
    for (std::uint32_t i = 0; i < count; ++i) {
      earliest_.push_back(windows.earliest(i));
      latest_.push_back(windows.latest(i));
      waits_.push_back(static_cast<std::uint32_t>(problem.parents[i].size()));
      const std::uint64_t low = random();
      keys_.push_back({low, random()});
      if (problem.time[i] > 0) by_end_.push_back(i);
    }
    levels_ = bottom_levels(problem);
    std::sort(by_end_.begin(), by_end_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return latest_[a] + problem.time[a] < latest_[b] + problem.time[b];
    });
  }

  DeadlineOutcome run() {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t i = 0; i < problem_.size(); ++i) {
      if (problem_.parents[i].empty()) release(i, 0, ready);
    }
    const bool met = at_time(0, std::move(ready));
    DeadlineOutcome outcome;
    outcome.nodes = nodes_;
    if (met) {
      outcome.verdict = DeadlineOutcome::Verdict::kMet;
      outcome.starts = starts_;
    } else if (!cut_short_) {
      outcome.verdict = DeadlineOutcome::Verdict::kImpossible;
    }
    return outcome;
  }

 private:
  struct Running {
    Ticks end;
    std::uint32_t task;
  };

  // `task` has all its parents done by `now`.
  void release(std::uint32_t task, Ticks now, std::vector<std::uint32_t>& ready) {
    if (problem_.time[task] > 0) {
      ready.push_back(task);
      return;
    }
    starts_[task] = now;
    for (const std::uint32_t child : problem_.children[task]) {
      if (--waits_[child] == 0) release(child, now, ready);
    }
  }
  void unrelease(std::uint32_t task) {
    if (problem_.time[task] > 0) return;
    for (const std::uint32_t child : problem_.children[task]) {
      if (waits_[child]++ == 0) unrelease(child);
    }
    starts_[task] = -1;
  }

  [[nodiscard]] bool spent() {
    if (cut_short_) return true;
    if (++nodes_ > limit_ || (nodes_ % kNodesBetweenChecks == 0 && stop_ && stop_())) {
      cut_short_ = true;
    }
    return cut_short_;
  }

  // All tasks that end by `now` are done and their children released.
  bool at_time(Ticks now, std::vector<std::uint32_t> ready) {
    if (spent()) return false;
    if (ready.empty() && running_.empty()) return true;
    if (!may_go_on(now, ready) || failed_before(now)) return false;
    std::sort(ready.begin(), ready.end(), [&](std::uint32_t a, std::uint32_t b) {
      return latest_[a] != latest_[b] ? latest_[a] < latest_[b] : levels_[a] > levels_[b];
    });
    const SetKey key = key_;
    if (choose(now, ready, 0, {})) return true;
    // Only what has failed to the end may cut others off: a state that merely waits for the next
    // time has started the same tasks as the one it came from.
    if (!cut_short_) note_failure(key, now);
    return false;
  }

  // ready[next …] may start now; `waiting` were left for later.
  bool choose(Ticks now, const std::vector<std::uint32_t>& ready, std::size_t next,
              std::vector<std::uint32_t> waiting) {
    if (next == ready.size() || running_.size() == problem_.processors) {
      waiting.insert(waiting.end(), ready.begin() + static_cast<std::ptrdiff_t>(next), ready.end());
      return advance(now, std::move(waiting));
    }
    const std::uint32_t task = ready[next];
    if (earliest_[task] <= now) {
      start(task, now);
      if (choose(now, ready, next + 1, waiting)) return true;
      unstart(task);
      if (cut_short_ || spent()) return false;
    }
    if (latest_[task] <= now) return false;  // it could not wait
    // Nothing would run: time would not go on, unless a window opens later.
    const bool is_last = running_.empty() && next + 1 == ready.size() && waiting.size() == next;
    if (is_last && earliest_[task] <= now) return false;
    waiting.push_back(task);
    return choose(now, ready, next + 1, std::move(waiting));
  }

  void start(std::uint32_t task, Ticks now) {
    starts_[task] = now;
    running_.push_back({now + problem_.time[task], task});
    key_.low += keys_[task].low;
    key_.high += keys_[task].high;
  }
  void unstart(std::uint32_t task) {
    starts_[task] = -1;
    running_.pop_back();
    key_.low -= keys_[task].low;
    key_.high -= keys_[task].high;
  }

  bool advance(Ticks now, std::vector<std::uint32_t> waiting) {
    Ticks then = std::numeric_limits<Ticks>::max();
    for (const Running& each : running_) then = std::min(then, each.end);
    if (running_.empty()) {
      for (const std::uint32_t task : waiting) then = std::min(then, earliest_[task]);
      if (then <= now) return false;
    }
    const auto idle = static_cast<Ticks>(problem_.processors - running_.size()) * (then - now);
    idle_ += idle;
    bool found = false;
    const std::int64_t whole = static_cast<std::int64_t>(problem_.processors) * deadline_;
    if (waiting.empty() || idle_ <= whole - total_work_) found = finish_and_go_on(then, waiting);
    if (!found) idle_ -= idle;
    return found;
  }

  bool finish_and_go_on(Ticks then, std::vector<std::uint32_t> ready) {
    const std::vector<Running> before = running_;
    std::vector<std::uint32_t> released;
    std::vector<std::uint32_t> done;
    running_.clear();
    for (const Running& each : before) {
      if (each.end > then) {
        running_.push_back(each);
      } else {
        done.push_back(each.task);
      }
    }
    for (const std::uint32_t task : done) {
      for (const std::uint32_t child : problem_.children[task]) {
        if (--waits_[child] != 0) continue;
        release(child, then, ready);
        released.push_back(child);
      }
    }
    if (at_time(then, std::move(ready))) return true;
    for (std::size_t i = released.size(); i-- > 0;) unrelease(released[i]);
    for (const std::uint32_t task : done) {
      for (const std::uint32_t child : problem_.children[task]) ++waits_[child];
    }
    running_ = before;
    return false;
  }

  // No window is closed, and up to every time what must be done by then still fits.
  bool may_go_on(Ticks now, const std::vector<std::uint32_t>& ready) {
    for (const std::uint32_t task : ready) {
      if (latest_[task] < now) return false;
    }
    const auto capacity = static_cast<std::int64_t>(problem_.processors);
    std::int64_t must = 0;
    for (std::size_t at = 0; at < by_end_.size(); ++at) {
      const std::uint32_t task = by_end_[at];
      if (starts_[task] >= 0) continue;
      const Ticks end = latest_[task] + problem_.time[task];
      must += problem_.time[task];
      if (must > capacity * (end - now) - running_until(now, end)) return false;
    }
    return true;
  }

  [[nodiscard]] std::int64_t running_until(Ticks now, Ticks end) const {
    std::int64_t sum = 0;
    for (const Running& each : running_) sum += std::max(0, std::min(each.end, end) - now);
    return sum;
  }

  using Ends = std::vector<std::pair<std::uint32_t, Ticks>>;  // of running tasks

  [[nodiscard]] Ends ends_of_running() const {
    Ends ends;
    for (const Running& each : running_) ends.emplace_back(each.task, each.end);
    return ends;
  }

  // Hopeless when a state that had started the same tasks has failed, was no later, and none of its
  // running tasks ended later.
  bool failed_before(Ticks now) {
    const auto found = failed_.find(key_);
    if (found == failed_.end()) return false;
    const Ends ends = ends_of_running();
    // A task that runs there but not here has ended here by `now`: it must have there, too.
    const auto fits = [&](const std::pair<std::uint32_t, Ticks>& theirs) {
      const auto ours = std::find_if(ends.begin(), ends.end(),
                                     [&](const auto& each) { return each.first == theirs.first; });
      return theirs.second <= (ours == ends.end() ? now : ours->second);
    };
    return std::any_of(found->second.begin(), found->second.end(), [&](const State& state) {
      return state.now <= now && std::all_of(state.ends.begin(), state.ends.end(), fits);
    });
  }

  void note_failure(const SetKey& key, Ticks now) {
    if (stored_ == kMostStates) return;
    std::vector<State>& states = failed_[key];
    if (states.size() == kMostOfOneSet) return;
    states.push_back({now, ends_of_running()});
    ++stored_;
  }

  struct State {
    Ticks now;
    Ends ends;
  };

  const ProcessorProblem& problem_;
  Ticks deadline_;
  std::uint64_t limit_;
  const std::function<bool()>& stop_;
  std::vector<Ticks> earliest_;
  std::vector<Ticks> latest_;
  std::vector<Ticks> levels_;
  std::vector<std::uint32_t> by_end_;
  std::vector<std::uint32_t> waits_;
  std::vector<SetKey> keys_;
  Starts starts_;
  std::vector<Running> running_;
  SetKey key_;
  std::int64_t idle_ = 0;
  std::int64_t total_work_;
  std::uint64_t nodes_ = 0;
  bool cut_short_ = false;
  std::unordered_map<SetKey, std::vector<State>, HashKey> failed_;
  std::size_t stored_ = 0;
};

}  // namespace

DeadlineOutcome search_deadline(const ProcessorProblem& problem, const Windows& windows,
                                Ticks deadline, std::uint64_t nodes,
                                const std::function<bool()>& stop) {
  return Search(problem, windows, deadline, nodes, stop).run();
}

}  // namespace autodist::search::placement
