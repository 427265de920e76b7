// Scheduling on equal processors: bounds against exhaustive search, schedules against their rules.

#include "autodist/search/placement/processors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "autodist/base/error.h"
#include "autodist/search/placement/deadline_search.h"
#include "autodist/search/placement/random.h"
#include "autodist/search/placement/windows.h"

namespace autodist::search::placement {
namespace {

TaskGraph random_graph(std::mt19937_64& random, std::uint32_t count) {
  TaskGraph graph;
  graph.name = "random";
  for (std::uint32_t i = 0; i < count; ++i) {
    Task task;
    task.name = "t" + std::to_string(i);
    task.cost = below(7, random);
    task.outputs = {{0, 0.0}};
    for (std::uint32_t parent = 0; parent < i; ++parent) {
      if (below(4, random) == 0) task.inputs.push_back({TaskId(parent), 0});
    }
    graph.tasks.push_back(task);
  }
  verify(graph, "random");
  return graph;
}

// The least length by trying every task next, at the earliest time that precedence and processors
// allow it (all active schedules).
class Exhaustive {
 public:
  explicit Exhaustive(const ProcessorProblem& problem) : problem_(problem) {
    starts_.assign(problem.size(), -1);
  }
  Ticks least() {
    next(0);
    return best_;
  }

 private:
  [[nodiscard]] bool fits(std::uint32_t task, Ticks at) const {
    for (Ticks t = at; t < at + problem_.time[task]; ++t) {
      std::size_t running = 0;
      for (std::size_t i = 0; i < starts_.size(); ++i) {
        running += static_cast<std::size_t>(starts_[i] >= 0 && starts_[i] <= t &&
                                            t < starts_[i] + problem_.time[i]);
      }
      if (running >= problem_.processors) return false;
    }
    return true;
  }

  void next(std::size_t placed) {
    if (placed == problem_.size()) {
      best_ = std::min(best_, length_of(problem_, starts_));
      return;
    }
    for (std::uint32_t i = 0; i < problem_.size(); ++i) {
      if (starts_[i] >= 0) continue;
      Ticks at = 0;
      bool ready = true;
      for (const std::uint32_t parent : problem_.parents[i]) {
        ready = ready && starts_[parent] >= 0;
        at = std::max(at, starts_[parent] + problem_.time[parent]);
      }
      if (!ready) continue;
      while (!fits(i, at)) ++at;
      starts_[i] = at;
      if (at + problem_.time[i] < best_) next(placed + 1);
      starts_[i] = -1;
    }
  }

  const ProcessorProblem& problem_;
  Starts starts_;
  Ticks best_ = std::numeric_limits<Ticks>::max();
};

TEST(Processors, AnswersAreTheExhaustiveOptimumAndProvedSo) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 150; ++i) {
    const TaskGraph graph = random_graph(random, 4 + below(5, random));
    const ProcessorProblem problem(graph, 1 + below(3, random));
    const Ticks optimum = Exhaustive(problem).least();
    EXPECT_LE(processor_bound(problem), optimum);
    ProcessorSearchOptions options;
    options.schedules = 400;
    const ProcessorAnswer answer = schedule_on_processors(problem, options);
    EXPECT_EQ(answer.length, optimum) << "graph " << i;
    EXPECT_EQ(answer.bound, optimum) << "graph " << i;
  }
}

TEST(Processors, BranchAndBoundDecidesEveryDeadlineRightly) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 150; ++i) {
    const TaskGraph graph = random_graph(random, 4 + below(5, random));
    const ProcessorProblem problem(graph, 1 + below(3, random));
    const Closure closure(problem);
    const Ticks optimum = Exhaustive(problem).least();
    for (Ticks deadline = optimum - 2; deadline <= optimum + 1; ++deadline) {
      // No propagation: the search alone decides.
      const Windows windows(problem, closure, deadline);
      const DeadlineOutcome outcome = search_deadline(problem, windows, deadline, 1 << 20, {});
      const auto wanted = deadline >= optimum ? DeadlineOutcome::Verdict::kMet
                                              : DeadlineOutcome::Verdict::kImpossible;
      EXPECT_EQ(outcome.verdict, wanted) << "graph " << i << ", deadline " << deadline;
      if (outcome.verdict == DeadlineOutcome::Verdict::kMet) {
        EXPECT_EQ(fault_of(problem, outcome.starts), "");
        EXPECT_LE(length_of(problem, outcome.starts), deadline);
      }
    }
  }
}

TEST(Processors, ListSchedulesAreFaultless) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 50; ++i) {
    const TaskGraph graph = random_graph(random, 40);
    const ProcessorProblem problem(graph, 1 + below(6, random));
    std::vector<double> keys;
    for (std::size_t t = 0; t < problem.size(); ++t) keys.push_back(fraction(random));
    const Starts starts = list_schedule(problem, keys);
    EXPECT_EQ(fault_of(problem, starts), "");
    const std::vector<DeviceIndex> on = processors_of(problem, starts);
    for (std::size_t a = 0; a < problem.size(); ++a) {
      EXPECT_LT(on[a], problem.processors);
      for (std::size_t b = 0; b < a; ++b) {
        if (on[a] != on[b] || problem.time[a] == 0 || problem.time[b] == 0) continue;
        EXPECT_TRUE(starts[a] + problem.time[a] <= starts[b] ||
                    starts[b] + problem.time[b] <= starts[a]);
      }
    }
  }
}

TEST(Processors, FaultsAreFound) {
  std::mt19937_64 random(1);
  const TaskGraph graph = random_graph(random, 20);
  const ProcessorProblem problem(graph, 2);
  EXPECT_NE(fault_of(problem, Starts(problem.size(), 0)), "");
  EXPECT_NE(fault_of(problem, {}), "");
}

TEST(Processors, FractionsAreRefused) {
  std::mt19937_64 random(1);
  TaskGraph graph = random_graph(random, 3);
  graph.tasks[1].cost = 0.5;
  EXPECT_THROW(ProcessorProblem(graph, 2), Error);
}

}  // namespace
}  // namespace autodist::search::placement
