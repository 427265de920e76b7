// The throughput objective: incremental loads against the definition, searches and bounds against
// all placements of small graphs.

#include "autodist/search/placement/throughput.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/search/placement/ideal_dp.h"
#include "autodist/search/placement/linear_dp.h"
#include "autodist/search/placement/multilevel.h"
#include "autodist/search/placement/throughput_search.h"
#include "autodist/search/testing/random_task_graph.h"

namespace autodist::search::placement {
namespace {

constexpr double kBytesPerUnit = 20'000;

double largest(const std::vector<DeviceLoad>& loads) {
  double most = 0;
  for (const DeviceLoad& load : loads) most = std::max(most, load.total());
  return most;
}

// Two accelerators and a CPU that is three times as slow.
ThroughputProblem problem_of(TaskGraph& graph, double memory = kNotSupported) {
  for (Task& task : graph.tasks) task.cpu_cost = 3 * task.cost;
  return ThroughputProblem(graph, alike(2, 1, memory), kBytesPerUnit);
}

double least_of_all(const TaskGraph& graph, const ThroughputProblem& problem) {
  double least = kNotSupported;
  for_each_placement(problem.groups(), problem.devices.size(), [&](const Placement& of_groups) {
    const ThroughputState state(problem, of_groups);
    if (state.overflow() > 0) return;
    least = std::min(
        least, largest(loads_of(graph, problem.expand(of_groups), problem.devices, kBytesPerUnit)));
  });
  return least;
}

TEST(Throughput, IncrementalLoadsAreTheDefinitions) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20; ++i) {
    TaskGraph graph = random_task_graph(random, 30);
    const ThroughputProblem problem = problem_of(graph);
    ThroughputState state(problem, std::vector<DeviceIndex>(problem.groups(), 0));
    for (int m = 0; m < 300; ++m) {
      const std::uint32_t group = below(static_cast<std::uint32_t>(problem.groups()), random);
      const auto to = static_cast<DeviceIndex>(below(3, random));
      if (to == state.device_of(group)) continue;
      const ThroughputState::Loads foretold = state.after_move(group, to);
      const DeviceIndex from = state.device_of(group);
      state.move(group, to);
      const std::vector<DeviceLoad> loads =
          loads_of(graph, problem.expand(state.assignment()), problem.devices, kBytesPerUnit);
      for (std::size_t d = 0; d < 3; ++d) {
        ASSERT_NEAR(state.load(d), loads[d].total(), 1e-6);
        ASSERT_NEAR(state.memory(d), loads[d].memory, 1e-6);
      }
      ASSERT_NEAR(foretold.from, loads[from].total(), 1e-6);
      ASSERT_NEAR(foretold.to, loads[to].total(), 1e-6);
    }
  }
}

TEST(Throughput, PortfolioIsOptimalOnSmallGraphsAndNeverBelowTheBound) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 25; ++i) {
    TaskGraph graph = random_task_graph(random, 8);
    const ThroughputProblem problem = problem_of(graph, 300);
    const double optimum = least_of_all(graph, problem);
    EXPECT_LE(throughput_bound(problem), optimum * (1 + 1e-9));
    ThroughputSearchOptions options;
    options.moves = 40'000;
    options.threads = 1;
    EXPECT_NEAR(throughput_portfolio(problem, graph, options).largest_load, optimum,
                1e-9 * optimum + 1e-9)
        << "graph " << i;
  }
}

TEST(Throughput, CutsAreLegalAndIdealsAreNoWorseThanOneOrder) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    TaskGraph graph = random_task_graph(random, 16);
    for (Task& task : graph.tasks) task.colour = kNoColour;
    const ThroughputProblem problem = problem_of(graph);
    const ThroughputAnswer line = place_linearly(problem, graph, Order::kTopo, 0);
    const auto ideals = cut_by_ideals(problem, graph, 100'000);
    ASSERT_TRUE(ideals);
    const double of_ideals = ThroughputState(problem, *ideals).largest_load();
    EXPECT_LE(of_ideals, line.largest_load * (1 + 1e-9));
    EXPECT_GE(of_ideals, throughput_bound(problem) * (1 - 1e-9));
  }
}

TEST(Throughput, AnswersDoNotDependOnTheNumberOfThreads) {
  std::mt19937_64 random(4);
  TaskGraph graph = random_task_graph(random, 60);
  const ThroughputProblem problem = problem_of(graph);
  ThroughputSearchOptions options;
  options.moves = 30'000;
  options.seed = 9;
  options.threads = 1;
  const ThroughputAnswer one = throughput_portfolio(problem, graph, options);
  options.threads = 3;
  EXPECT_EQ(throughput_portfolio(problem, graph, options).assignment, one.assignment);
  EXPECT_FALSE(one.stopped);
}

TEST(Throughput, ColoursStayTogetherAndMemoryIsKept) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 10; ++i) {
    TaskGraph graph = random_task_graph(random, 40);
    double total = 0;
    for (const Task& task : graph.tasks) total += task.memory;
    const ThroughputProblem problem = problem_of(graph, total / 2.5);
    ThroughputSearchOptions options;
    options.moves = 20'000;
    const ThroughputAnswer answer = throughput_portfolio(problem, graph, options);
    ASSERT_NE(answer.largest_load, kNotSupported);
    const Placement placement = problem.expand(answer.assignment);
    for (std::size_t a = 0; a < graph.tasks.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (graph.tasks[a].colour == kNoColour) continue;
        if (graph.tasks[a].colour != graph.tasks[b].colour) continue;
        EXPECT_EQ(placement[a], placement[b]);
      }
    }
    const std::vector<DeviceLoad> loads =
        loads_of(graph, placement, problem.devices, kBytesPerUnit);
    EXPECT_LE(std::max(loads[0].memory, loads[1].memory), total / 2.5);
  }
}

TEST(Throughput, AGroupThatFitsNowhereIsRefused) {
  TaskGraph graph;
  graph.name = "big";
  graph.tasks.resize(1);
  graph.tasks[0].name = "one";
  graph.tasks[0].memory = 10;
  EXPECT_THROW(ThroughputProblem(graph, alike(2, 0, 5)), Error);
}

}  // namespace
}  // namespace autodist::search::placement
