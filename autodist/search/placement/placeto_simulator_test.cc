// Placeto's simulator and the traversal orders against vectors computed with their semantics
// (testdata/placeto_golden.json.gz: 40 random graphs, three placements each).

#include "autodist/search/placement/placeto_simulator.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autodist/base/file.h"
#include "autodist/search/placement/gzip.h"
#include "autodist/search/placement/orders.h"
#include "autodist/search/placement/readers.h"

namespace autodist::search::placement {
namespace {

using Json = nlohmann::json;

const Json& golden_cases() {
  static const Json file = Json::parse(gunzip(
      read_file(AUTODIST_SOURCE_DIR "/autodist/search/placement/testdata/placeto_golden.json.gz"),
      "placeto_golden.json.gz"));
  return file.at("cases");
}

TaskGraph graph_of(const Json& one) { return parse_placeto_json(one.dump(), "golden"); }

Placement placement_of(const Json& devices, const TaskGraph& graph) {
  Placement placement;
  for (const Task& task : graph.tasks) {
    placement.push_back(devices.at(task.name).get<DeviceIndex>());
  }
  return placement;
}

TEST(PlacetoSimulator, RunTimesAndStartsAreTheGoldenOnes) {
  int runs = 0;
  for (const Json& one : golden_cases()) {
    const TaskGraph graph = graph_of(one);
    PlacetoSimulator simulator(graph, one.at("n_devs").get<std::size_t>());
    for (const Json& eval : one.at("evals")) {
      SCOPED_TRACE(testing::Message() << "graph " << one.at("id") << ", run " << runs);
      const Placement placement = placement_of(eval.at("placement"), graph);
      const auto expected = eval.at("runtime_us").get<double>();
      EXPECT_NEAR(simulator.run(placement), expected, 1e-9 * expected);
      for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
        const auto start = eval.at("start_us").at(graph.tasks[i].name).get<double>();
        EXPECT_NEAR(simulator.timeline().start[i], start, 1e-9 * start) << graph.tasks[i].name;
      }
      ++runs;
    }
  }
  EXPECT_EQ(runs, 120);
}

TEST(PlacetoSimulator, MemoryPeaksAreTheGoldenOnes) {
  for (const Json& one : golden_cases()) {
    const TaskGraph graph = graph_of(one);
    PlacetoSimulator simulator(graph, one.at("n_devs").get<std::size_t>());
    for (const Json& eval : one.at("evals")) {
      SCOPED_TRACE(testing::Message() << "graph " << one.at("id"));
      const Placement placement = placement_of(eval.at("placement"), graph);
      simulator.run(placement);
      EXPECT_EQ(simulator.peak_bytes(placement),
                eval.at("peak_bytes").get<std::vector<std::int64_t>>());
    }
  }
}

TEST(Orders, TopologicalOrdersAreTheRecordedOnes) {
  std::mt19937_64 random(1);
  for (const Json& one : golden_cases()) {
    const TaskGraph graph = graph_of(one);
    for (const auto& [name, expected] : one.at("orders").items()) {
      std::vector<std::string> names;
      for (const std::uint32_t task : traversal(graph, parse_order(name), random)) {
        names.push_back(graph.tasks[task].name);
      }
      EXPECT_EQ(names, expected.get<std::vector<std::string>>())
          << "graph " << one.at("id") << ", " << name;
    }
  }
}

TEST(PlacetoSimulator, OneDeviceTakesTheSumOfCostsAndPauses) {
  const TaskGraph graph = graph_of(golden_cases().back());
  double sum = 0;
  for (const Task& task : graph.tasks) sum += task.cost + (task.cost > 0 ? 5.7 : 0);
  PlacetoSimulator simulator(graph, 1);
  EXPECT_NEAR(simulator.run(Placement(graph.tasks.size(), 0)), sum, 1e-6);
}

}  // namespace
}  // namespace autodist::search::placement
