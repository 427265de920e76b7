#include "autodist/search/placement/makespan_bound.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autodist/base/sort_unique.h"
#include "autodist/search/placement/disjoint_sets.h"

namespace autodist::search::placement {
namespace {

constexpr int kMostRounds = 12;           // of binding and lengthening, per deadline
constexpr double kPrecision = 1e-4;       // of the bisection, relative
constexpr double kSafety = 1 - 1e-9;      // for rounding: a bound may be a little low, never high
constexpr std::size_t kMostTasks = 4000;  // beyond, pairs of tasks are too many

struct Edge {
  std::uint32_t from;
  std::uint32_t to;
  double transfer;
};

// Tasks in a topological order, with the least that they and their tensors can cost.
struct Relaxed {
  Relaxed(const TaskGraph& graph, const std::vector<ListDevice>& on) : devices(on.size()) {
    const std::vector<std::uint32_t> order = topological_order(neighbours_of(graph));
    std::vector<std::uint32_t> index(order.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) index[order[i]] = i;
    double rate = 0;
    double least_pause = kNotSupported;
    for (const ListDevice& device : on) {
      rate = std::max(rate, std::max(device.bytes_per_unit, device.inside_bytes_per_unit));
      least_pause = std::min(least_pause, device.after_op);
    }
    into.resize(order.size());
    out.resize(order.size());
    for (const std::uint32_t task : order) {
      double least = kNotSupported;
      for (const ListDevice& device : on) {
        least = std::min(least, time_on(graph.tasks[task], device));
      }
      cost.push_back(least);
      pause.push_back(least > 0 ? least_pause : 0);
    }
    for (const std::uint32_t task : order) {
      for (const TaskInput& input : graph.tasks[task].inputs) {
        const TaskOutput& output = graph.task(input.task).outputs[input.output];
        const double transfer = transfer_time(output, rate);
        const Edge edge{index[input.task.value], index[task], transfer};
        // Of two outputs of one parent the last alone counts in Placeto's simulation; the least of
        // them is a bound in any.
        const auto same = std::find_if(into[edge.to].begin(), into[edge.to].end(),
                                       [&](const Edge& e) { return e.from == edge.from; });
        if (same == into[edge.to].end()) {
          into[edge.to].push_back(edge);
        } else {
          same->transfer = std::min(same->transfer, transfer);
        }
      }
    }
    for (const std::vector<Edge>& edges : into) {
      for (const Edge& edge : edges) out[edge.from].push_back(edge);
    }
  }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(cost.size()); }

  std::size_t devices;
  std::vector<double> cost;
  std::vector<double> pause;
  std::vector<std::vector<Edge>> into;
  std::vector<std::vector<Edge>> out;
};

// Whether a step can end by a deadline, as far as this relaxation sees.
class Contradiction {
 public:
  Contradiction(const Relaxed& problem, double deadline)
      : problem_(problem),
        deadline_(deadline),
        classes_(problem.size()),
        head_(problem.size(), 0),
        tail_(problem.size(), 0) {}

  bool found() {
    for (int round = 0; round < kMostRounds; ++round) {
      if (windows_close() || devices_overflow()) return true;
      bool bound = false;
      for (std::uint32_t task = 0; task < problem_.size(); ++task) bound |= bind(task);
      if (!bound && round > 0) return false;
      lengthen();
    }
    return windows_close() || devices_overflow();
  }

 private:
  // The least between the end of edge.from and the start of edge.to.
  [[nodiscard]] double least(const Edge& edge) {
    if (classes_.find(edge.from) == classes_.find(edge.to)) return problem_.pause[edge.from];
    return std::min(problem_.pause[edge.from], edge.transfer);
  }

  // Heads: earliest starts. Tails: least time from a task's end to the step's, its pause included.
  bool windows_close() {
    for (std::uint32_t i = 0; i < problem_.size(); ++i) {
      for (const Edge& edge : problem_.into[i]) {
        head_[i] = std::max(head_[i], head_[edge.from] + problem_.cost[edge.from] + least(edge));
      }
    }
    for (std::uint32_t i = problem_.size(); i-- > 0;) {
      tail_[i] = std::max(tail_[i], problem_.pause[i]);
      for (const Edge& edge : problem_.out[i]) {
        tail_[i] = std::max(tail_[i], least(edge) + problem_.cost[edge.to] + tail_[edge.to]);
      }
      if (head_[i] + problem_.cost[i] + tail_[i] > deadline_) return true;
    }
    return false;
  }

  // Of the tasks whose head is at least h and whose tail is at least q, `machines` devices need so
  // long between h and the deadline less q; checked for every pair (h, q).
  bool too_much(std::vector<std::uint32_t> tasks, double machines) {
    std::sort(tasks.begin(), tasks.end(),
              [&](std::uint32_t a, std::uint32_t b) { return tail_[a] > tail_[b]; });
    std::vector<double> heads;
    for (const std::uint32_t task : tasks) heads.push_back(head_[task]);
    sort_unique(heads);
    for (const double head : heads) {
      double work = 0;
      double last_pause = 0;
      for (const std::uint32_t task : tasks) {
        if (head_[task] < head) continue;
        work += problem_.cost[task] + problem_.pause[task];
        last_pause = std::max(last_pause, problem_.pause[task]);
        if (head + work / machines - last_pause + tail_[task] > deadline_) return true;
      }
    }
    return false;
  }

  bool devices_overflow() {
    std::vector<std::vector<std::uint32_t>> members(problem_.size());
    std::vector<std::uint32_t> all(problem_.size());
    std::iota(all.begin(), all.end(), 0u);
    for (const std::uint32_t i : all) members[classes_.find(i)].push_back(i);
    for (const std::vector<std::uint32_t>& one : members) {
      if (one.size() > 1 && too_much(one, 1)) return true;
    }
    return too_much(std::move(all), static_cast<double>(problem_.devices));
  }

  // A path from one task on: its length without the tasks at its ends, and the least that it grows
  // when one of its edges leaves a device.
  struct Path {
    double length = -1;
    double growth = 0;
    [[nodiscard]] double apart() const { return length + growth; }
  };

  // Joins `from` with every task that cannot be on another device.
  bool bind(std::uint32_t from) {
    const std::uint32_t count = problem_.size();
    longest_.assign(count, {});
    widest_.assign(count, {});
    longest_[from] = widest_[from] = {0, std::numeric_limits<double>::infinity()};
    bool joined = false;
    for (std::uint32_t i = from; i < count; ++i) {
      if (longest_[i].length < 0) continue;
      if (i != from) {
        const double apart = std::max(longest_[i].apart(), widest_[i].apart());
        if (head_[from] + problem_.cost[from] + apart + problem_.cost[i] + tail_[i] > deadline_) {
          joined |= classes_.join(from, i);
        }
      }
      const double own = i == from ? 0 : problem_.cost[i];
      for (const Edge& edge : problem_.out[i]) {
        const double here = least(edge);
        // An edge within a class never leaves its device.
        const bool inside = classes_.find(edge.from) == classes_.find(edge.to);
        const double growth =
            inside ? std::numeric_limits<double>::infinity() : std::max(0.0, edge.transfer - here);
        const auto extended = [&](const Path& path) {
          return Path{path.length + own + here, std::min(path.growth, growth)};
        };
        const Path along = extended(longest_[i]);
        const Path wide = extended(widest_[i]);
        Path& longest = longest_[edge.to];
        Path& widest = widest_[edge.to];
        for (const Path& path : {along, wide}) {
          if (path.length > longest.length) longest = path;
          if (path.length >= 0 && (widest.length < 0 || path.apart() > widest.apart())) {
            widest = path;
          }
        }
      }
    }
    return joined;
  }

  // On its own device a task runs after all its ancestors there, and before all its descendants.
  void lengthen() {
    const std::uint32_t count = problem_.size();
    std::vector<std::vector<std::uint32_t>> ancestors(count);
    std::vector<bool> reached(count);
    for (std::uint32_t from = 0; from < count; ++from) {
      const std::uint32_t own = classes_.find(from);
      std::fill(reached.begin() + from, reached.end(), false);
      reached[from] = true;
      std::vector<std::uint32_t> below;
      for (std::uint32_t i = from; i < count; ++i) {
        if (!reached[i]) continue;
        for (const Edge& edge : problem_.out[i]) reached[edge.to] = true;
        if (i == from || classes_.find(i) != own) continue;
        below.push_back(i);
        ancestors[i].push_back(from);
      }
      if (below.empty()) continue;
      tail_[from] = std::max(tail_[from], problem_.pause[from] + sequence(below, tail_));
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      head_[i] = std::max(head_[i], sequence(ancestors[i], head_));
    }
  }

  // The end of the tasks one after the other, none before its `release`.
  double sequence(std::vector<std::uint32_t>& tasks, const std::vector<double>& release) {
    std::sort(tasks.begin(), tasks.end(),
              [&](std::uint32_t a, std::uint32_t b) { return release[a] > release[b]; });
    double work = 0;
    double most = 0;
    double shared = 0;
    for (const std::uint32_t task : tasks) {
      work += problem_.cost[task] + problem_.pause[task];
      // From behind, the pause of the last to run is part of its tail already.
      if (&release == &tail_) shared = std::max(shared, problem_.pause[task]);
      most = std::max(most, release[task] + work - shared);
    }
    return most;
  }

  const Relaxed& problem_;
  double deadline_;
  DisjointSets classes_;  // of tasks on one device
  std::vector<double> head_;
  std::vector<double> tail_;
  std::vector<Path> longest_;
  std::vector<Path> widest_;
};

double critical_path_length(const Relaxed& problem) {
  std::vector<double> end(problem.size(), 0);
  double length = 0;
  for (std::uint32_t i = 0; i < problem.size(); ++i) {
    double start = 0;
    for (const Edge& edge : problem.into[i]) {
      start = std::max(start, end[edge.from] + std::min(problem.pause[edge.from], edge.transfer));
    }
    end[i] = start + problem.cost[i];
    length = std::max(length, end[i] + problem.pause[i]);
  }
  return length;
}

}  // namespace

double makespan_bound(const TaskGraph& graph, const std::vector<ListDevice>& devices) {
  const Relaxed problem(graph, devices);
  double work = 0;
  for (std::uint32_t i = 0; i < problem.size(); ++i) work += problem.cost[i] + problem.pause[i];
  double low = std::max(critical_path_length(problem), work / static_cast<double>(devices.size()));
  double high = work;
  for (const std::vector<Edge>& edges : problem.into) {
    for (const Edge& edge : edges) high += edge.transfer;
  }
  if (problem.size() > kMostTasks) return low * kSafety;
  // One device takes at most `work` where all are alike: bounds above are not sought.
  high = std::min(high, std::max(low, work));
  while (high - low > kPrecision * high) {
    const double middle = low + (high - low) / 2;
    (Contradiction(problem, middle).found() ? low : high) = middle;
  }
  return low * kSafety;
}

}  // namespace autodist::search::placement
