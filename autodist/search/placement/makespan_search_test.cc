// Searches for a short step, and the bound, against all placements of small graphs.

#include "autodist/search/placement/makespan_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "autodist/search/placement/link_simulator.h"
#include "autodist/search/placement/makespan_bound.h"
#include "autodist/search/placement/placeto_simulator.h"
#include "autodist/search/testing/random_task_graph.h"

namespace autodist::search::placement {
namespace {

std::vector<ListDevice> placeto_devices(std::size_t count) {
  return std::vector<ListDevice>(count, ListDevice{false, 1, 7600, kNotSupported, 5.7, 25});
}

MakespanProblem placeto_problem(const TaskGraph& graph, std::size_t devices) {
  MakespanProblem problem;
  problem.graph = &graph;
  problem.devices = placeto_devices(devices);
  problem.simulator = [&graph, devices] {
    return std::make_unique<PlacetoSimulator>(graph, devices);
  };
  return problem;
}

TEST(Makespan, NoPlacementIsBelowTheBoundInEitherSimulation) {
  std::mt19937_64 random(1);
  double tightest = 0;
  for (int i = 0; i < 120; ++i) {
    // Small tensors spread, large ones bind: both must hold.
    const std::uint32_t most_bytes = i % 3 == 0 ? 100'000 : 8'000'000;
    const TaskGraph graph = random_task_graph(random, 4 + below(4, random), most_bytes);
    const std::size_t devices = 2 + below(2, random);
    const double bound = makespan_bound(graph, placeto_devices(devices));
    PlacetoSimulator placeto(graph, devices);
    std::vector<ListDevice> without_pauses = placeto_devices(devices);
    for (ListDevice& device : without_pauses) device.after_op = device.after_transfer = 0;
    const double bound_of_links = makespan_bound(graph, without_pauses);
    LinkSimulator links(graph, without_pauses);
    double least = kNotSupported;
    for_each_placement(graph.tasks.size(), devices, [&](const Placement& placement) {
      least = std::min(least, placeto.run(placement));
      ASSERT_GE(links.run(placement), bound_of_links * (1 - 1e-9)) << "graph " << i;
    });
    ASSERT_GE(least, bound * (1 - 1e-9)) << "graph " << i;
    if (least > 0) tightest = std::max(tightest, bound / least);
  }
  EXPECT_GT(tightest, 0.999);
}

TEST(Makespan, PortfolioFindsTheBestOfSmallGraphs) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20; ++i) {
    TaskGraph graph = random_task_graph(random, 7);
    for (Task& task : graph.tasks) task.colour = kNoColour;
    PlacetoSimulator simulator(graph, 2);
    double least = kNotSupported;
    for_each_placement(7, 2, [&](const Placement& placement) {
      least = std::min(least, simulator.run(placement));
    });
    MakespanOptions options;
    options.simulations = 3000;
    const MakespanAnswer answer = makespan_portfolio(placeto_problem(graph, 2), options);
    EXPECT_NEAR(answer.time, least, 1e-9 * least) << "graph " << i;
    EXPECT_LE(answer.simulations, options.simulations);
  }
}

TEST(Makespan, SearchesKeepToTheirSimulationsAndRepeat) {
  std::mt19937_64 random(3);
  const TaskGraph graph = random_task_graph(random, 60);
  const MakespanProblem problem = placeto_problem(graph, 3);
  MakespanOptions options;
  options.simulations = 500;
  options.seed = 4;
  for (const auto search : {makespan_portfolio, evolve_keys}) {
    const MakespanAnswer one = search(problem, options);
    const MakespanAnswer two = search(problem, options);
    EXPECT_EQ(one.placement, two.placement);
    EXPECT_EQ(one.simulations, options.simulations);
    PlacetoSimulator simulator(graph, 3);
    EXPECT_EQ(simulator.run(one.placement), one.time);
  }
}

TEST(Makespan, MoreDevicesAreNotWorse) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 4; ++i) {
    const TaskGraph graph = random_task_graph(random, 80);
    double before = kNotSupported;
    for (const std::size_t devices : {1, 2, 3, 4, 8}) {
      MakespanOptions options;
      options.simulations = 1000 * portfolio_stages(devices);
      const double time = makespan_portfolio(placeto_problem(graph, devices), options).time;
      EXPECT_LE(time, before) << "graph " << i << " on " << devices;
      before = time;
    }
  }
}

// With so few simulations that hardly any list rule is tried, or with too little memory on the
// first devices.
TEST(Makespan, PortfolioOfFewSimulationsAndOfTightMemoryAnswers) {
  std::mt19937_64 random(7);
  const TaskGraph graph = random_task_graph(random, 12);
  for (std::uint64_t simulations = 8; simulations <= 200; simulations += 16) {
    MakespanOptions options;
    options.simulations = simulations;
    const MakespanAnswer answer = makespan_portfolio(placeto_problem(graph, 8), options);
    EXPECT_NE(answer.time, kNotSupported);
    EXPECT_LE(answer.simulations, simulations);
  }
  const TaskGraph light = random_task_graph(random, 24, 10);
  MakespanProblem tight = placeto_problem(light, 6);
  double all = 0;
  for (const Task& task : light.tasks) all += task.memory;
  for (ListDevice& device : tight.devices) device.memory = all / 4;
  tight.simulator = [&] { return std::make_unique<LinkSimulator>(light, tight.devices); };
  EXPECT_NE(makespan_portfolio(tight, {}).time, kNotSupported);
}

TEST(Makespan, CoordinateDescentNeverGetsWorseAndEveryRulePlacesAllTasks) {
  std::mt19937_64 random(4);
  const TaskGraph graph = random_task_graph(random, 40);
  const MakespanProblem problem = placeto_problem(graph, 3);
  const double one = place_on_one(problem).time;
  for (const Order order : kAllOrders) {
    EXPECT_LE(coordinate_descent(problem, order, 20, {}).time, one);
  }
  for (const ListRule rule : {ListRule::kTopo, ListRule::kHeft, ListRule::kEtf, ListRule::kSct}) {
    EXPECT_EQ(place_by_rule(problem, rule).placement.size(), graph.tasks.size());
  }
}

// a on device 0 feeds b and c on device 1; d on device 2 feeds b.
TEST(Links, TransfersContendAtBothEnds) {
  TaskGraph graph;
  graph.name = "links";
  for (const char* name : {"a", "b", "c", "d"}) {
    Task task;
    task.name = name;
    task.cost = 10;
    task.outputs = {{100, std::nullopt}};
    graph.tasks.push_back(task);
  }
  graph.tasks[1].inputs = {{TaskId(0), 0}, {TaskId(3), 0}};
  graph.tasks[2].inputs = {{TaskId(0), 0}};
  std::vector<ListDevice> devices(3);
  for (ListDevice& device : devices) device.bytes_per_unit = 10;  // a tensor takes 10
  LinkSimulator simulator(graph, devices);
  // Both a and d end at 10; device 1 receives one after the other, at 20 and 30. c runs at 20.
  EXPECT_DOUBLE_EQ(simulator.run({0, 1, 1, 2}), 40);
  EXPECT_DOUBLE_EQ(simulator.timeline().start[2], 20);
  // To two devices the tensor of a is sent twice.
  EXPECT_DOUBLE_EQ(simulator.run({0, 0, 1, 0}), 30 + 0);
  EXPECT_DOUBLE_EQ(simulator.run({0, 1, 2, 1}), 40);
  // Half the speed.
  devices[0].speed = 0.5;
  EXPECT_DOUBLE_EQ(LinkSimulator(graph, devices).run({0, 0, 0, 0}), 80);
}

TEST(Links, TheBoundKnowsTheFastLinksInsideANode) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 40; ++i) {
    const TaskGraph graph = random_task_graph(random, 6);
    std::vector<ListDevice> devices(3);
    for (std::size_t d = 0; d < 3; ++d) {
      devices[d].bytes_per_unit = 2000;
      devices[d].inside_bytes_per_unit = 50'000;
      devices[d].node = d < 2 ? 0 : 1;
      devices[d].speed = d == 1 ? 2 : 1;
    }
    const double bound = makespan_bound(graph, devices);
    LinkSimulator simulator(graph, devices);
    for_each_placement(6, 3, [&](const Placement& placement) {
      ASSERT_GE(simulator.run(placement), bound * (1 - 1e-9)) << "graph " << i;
    });
  }
}

TEST(Links, MemoryIsALimit) {
  TaskGraph graph;
  graph.name = "memory";
  graph.tasks.resize(2);
  for (std::size_t i = 0; i < 2; ++i) {
    graph.tasks[i].name = std::string(1, static_cast<char>('a' + i));
    graph.tasks[i].cost = 1;
    graph.tasks[i].memory = 50;
    graph.tasks[i].outputs = {{20, std::nullopt}};
  }
  graph.tasks[1].inputs = {{TaskId(0), 0}};
  std::vector<ListDevice> devices(2);
  for (ListDevice& device : devices) device.memory = 90;
  LinkSimulator simulator(graph, devices);
  EXPECT_EQ(simulator.run({0, 0}), kNotSupported);  // 100 and outputs
  EXPECT_NE(simulator.run({0, 1}), kNotSupported);  // 70; 50 + 20 copied + 20
  EXPECT_DOUBLE_EQ(simulator.peak_bytes()[1], 90);
}

}  // namespace
}  // namespace autodist::search::placement
