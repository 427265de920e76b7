#include "autodist/search/placement/processors.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "autodist/base/error.h"

namespace autodist::search::placement {

ProcessorProblem::ProcessorProblem(const TaskGraph& graph, std::size_t count) : processors(count) {
  const Neighbours neighbours = neighbours_of(graph);
  task = topological_order(neighbours);
  std::vector<std::uint32_t> index(task.size());
  for (std::uint32_t i = 0; i < task.size(); ++i) index[task[i]] = i;
  parents.resize(task.size());
  children.resize(task.size());
  double sum = 0;
  for (std::uint32_t i = 0; i < task.size(); ++i) {
    const double cost = graph.tasks[task[i]].cost;
    sum += cost;
    if (cost != std::floor(cost) || cost >= 1 << 20 || sum >= 1 << 30) {
      fail(ErrorCode::kUsage,
           "{}: '{}' costs {}, scheduling without communication expects integers (each below 2^20, "
           "all together below 2^30)",
           graph.name, graph.tasks[task[i]].name, cost);
    }
    time.push_back(static_cast<Ticks>(cost));
    for (const std::uint32_t parent : neighbours.parents[task[i]]) {
      parents[i].push_back(index[parent]);
      children[index[parent]].push_back(i);
    }
  }
}

ProcessorProblem ProcessorProblem::reversed() const {
  ProcessorProblem turned;
  const auto last = static_cast<std::uint32_t>(size() - 1);
  turned.processors = processors;
  for (std::uint32_t i = 0; i <= last; ++i) {
    turned.time.push_back(time[last - i]);
    turned.task.push_back(task[last - i]);
    turned.parents.push_back(children[last - i]);
    turned.children.push_back(parents[last - i]);
    for (std::uint32_t& each : turned.parents.back()) each = last - each;
    for (std::uint32_t& each : turned.children.back()) each = last - each;
  }
  return turned;
}

Ticks length_of(const ProcessorProblem& problem, const Starts& starts) {
  Ticks length = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    length = std::max(length, starts[i] + problem.time[i]);
  }
  return length;
}

std::string fault_of(const ProcessorProblem& problem, const Starts& starts) {
  if (starts.size() != problem.size()) return "another count of tasks";
  std::vector<std::pair<Ticks, int>> changes;
  for (std::uint32_t i = 0; i < starts.size(); ++i) {
    if (starts[i] < 0) return fmt::format("task {} starts before 0", problem.task[i]);
    for (const std::uint32_t parent : problem.parents[i]) {
      if (starts[parent] + problem.time[parent] <= starts[i]) continue;
      return fmt::format("task {} starts before its parent {} ends", problem.task[i],
                         problem.task[parent]);
    }
    if (problem.time[i] == 0) continue;
    changes.emplace_back(starts[i], 1);
    changes.emplace_back(starts[i] + problem.time[i], -1);
  }
  std::sort(changes.begin(), changes.end());  // ends before starts
  std::size_t running = 0;
  for (const auto& [at, change] : changes) {
    running += static_cast<std::size_t>(change);
    if (running > problem.processors) return fmt::format("too many tasks at {}", at);
  }
  return "";
}

std::vector<DeviceIndex> processors_of(const ProcessorProblem& problem, const Starts& starts) {
  std::vector<std::uint32_t> order(problem.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return starts[a] < starts[b]; });
  std::vector<Ticks> free(problem.processors, 0);
  std::vector<DeviceIndex> processor(problem.size(), 0);
  for (const std::uint32_t i : order) {
    if (problem.time[i] == 0) continue;
    const auto at =
        std::find_if(free.begin(), free.end(), [&](Ticks until) { return until <= starts[i]; });
    *at = starts[i] + problem.time[i];
    processor[i] = static_cast<DeviceIndex>(at - free.begin());
  }
  return processor;
}

std::vector<Ticks> bottom_levels(const ProcessorProblem& problem) {
  std::vector<Ticks> level(problem.size(), 0);
  for (std::size_t i = problem.size(); i-- > 0;) {
    for (const std::uint32_t child : problem.children[i]) {
      level[i] = std::max(level[i], level[child]);
    }
    level[i] += problem.time[i];
  }
  return level;
}

Starts list_schedule(const ProcessorProblem& problem, const std::vector<double>& keys) {
  Starts starts(problem.size(), 0);
  std::vector<std::uint32_t> waits(problem.size());
  std::vector<std::uint32_t> ready;
  using Running = std::pair<Ticks, std::uint32_t>;  // end, task
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  Ticks now = 0;
  const auto finish = [&](std::uint32_t i, const auto& self) -> void {
    for (const std::uint32_t child : problem.children[i]) {
      if (--waits[child] != 0) continue;
      starts[child] = now;
      if (problem.time[child] == 0) {
        self(child, self);  // takes no processor
      } else {
        ready.push_back(child);
      }
    }
  };
  for (std::uint32_t i = 0; i < problem.size(); ++i) {
    waits[i] = static_cast<std::uint32_t>(problem.parents[i].size());
  }
  for (std::uint32_t i = 0; i < problem.size(); ++i) {
    if (!problem.parents[i].empty()) continue;
    if (problem.time[i] == 0) {
      finish(i, finish);
    } else {
      ready.push_back(i);
    }
  }
  while (!ready.empty() || !running.empty()) {
    while (!ready.empty() && running.size() < problem.processors) {
      std::size_t best = 0;
      for (std::size_t r = 1; r < ready.size(); ++r) {
        if (keys[ready[r]] > keys[ready[best]]) best = r;
      }
      const std::uint32_t task = ready[best];
      ready[best] = ready.back();
      ready.pop_back();
      starts[task] = now;
      running.emplace(now + problem.time[task], task);
    }
    now = running.top().first;
    while (!running.empty() && running.top().first == now) {
      const std::uint32_t done = running.top().second;
      running.pop();
      finish(done, finish);
    }
  }
  return starts;
}

}  // namespace autodist::search::placement
