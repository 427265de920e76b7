#include "autodist/planning/explanation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/placing.h"
#include "autodist/planning/planning.h"
#include "autodist/planning/prediction.h"
#include "autodist/report/plan.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/device_table.h"

namespace autodist::planning {
namespace {

cluster::Cluster two_machines(const std::string& devices) {
  std::string text = "nodes:\n";
  for (const char* address : {"10.0.0.1, chief: true", "10.0.0.2"}) {
    text += fmt::format("  - {{address: {}, network_bandwidth: 0.1{}}}\n", address, devices);
  }
  return cluster::parse_resource_spec(text, "test");
}

Explanation explained(const std::string& model, const std::string& builder,
                      const cluster::Cluster& cluster, const std::string& budget) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph(model));
  SearchRequest request;
  request.options.budget = search::parse_budget(budget);
  return explain(graph, cluster, search::build_strategy(builder, *graph, cluster), request);
}

// Rows that a larger batch looks up are more.
TEST(Plan, SaysTheBytesOfTheBatchThatIsAsked) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("ncf"));
  const cluster::Cluster cluster = two_machines("");
  const strategy::Strategy strategy = search::build_strategy("Parallax", *graph, cluster);
  const program::Program program = passes::rewrite(graph, strategy, cluster, {}, "test");
  std::int64_t before = 0;
  for (const std::int64_t batch : {graph->example_batch, 16 * graph->example_batch}) {
    sim::CostOptions costs;
    costs.batch = batch;
    const Predicted predicted = predict(program, cluster, {}, costs);
    ASSERT_TRUE(predicted.simulation);
    const auto json = report::plan_json(strategy, program, batch);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto planned = json.at("ranks").at(i).at("sent_bytes_per_step").get<std::int64_t>();
      EXPECT_NEAR(predicted.simulation->nodes[i].sent.value, planned, 0.01 * planned) << batch;
    }
    EXPECT_GT(predicted.simulation->nodes[0].sent.value, 2 * before);
    before = predicted.simulation->nodes[0].sent.value;
  }
}

// Arithmetic has said that a step of 3 ms would be 13 ms shorter.
TEST(Explanation, PromisesNothingThatTheSimulatorDenies) {
  for (const char* model : {"digits", "gpt-small", "vgg16-small"}) {
    for (const char* builder : {"PS", "AllReduce", "AllReduce:algorithm=library", "P3"}) {
      const cluster::Cluster cluster = two_machines("");
      const Explanation explanation = explained(model, builder, cluster, "4");
      ASSERT_FALSE(explanation.variables.empty());
      std::size_t simulated = 0;
      for (const Explained& row : explanation.variables) {
        simulated += row.simulated ? 1 : 0;
        EXPECT_GT(explanation.simulation.step + row.cost, Seconds{}) << model << " by " << builder;
        EXPECT_TRUE(row.simulated || row.cost >= Seconds{}) << model << " by " << builder;
      }
      EXPECT_GT(simulated, 0U) << model << " by " << builder;
      EXPECT_LE(simulated, 4U) << "the budget";
    }
  }
}

TEST(Explanation, ASearchsCandidatesAreTheAlternatives) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("digits"));
  const cluster::Cluster cluster = two_machines("");
  SearchRequest request;
  request.options.budget = search::parse_budget("8");
  const SearchedPlan plan = search_plan(graph, cluster, request);
  const Explanation explanation = explain(graph, cluster, plan.strategy, request, &plan.found);
  EXPECT_EQ(explanation.alternatives.size(), plan.found.candidates.size());
}

TEST(Prediction, OfAnUnknownKindIsAnError) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("digits"));
  const cluster::Cluster cluster = two_machines(", gpus: [0], devices: {kind: B9000}");
  const strategy::Strategy strategy = search::build_strategy("PS", *graph, cluster);
  const program::Program program = passes::rewrite(graph, strategy, cluster, {}, "test");
  EXPECT_THROW(predict(program, cluster, {}), Error);
  EXPECT_THROW(on_cluster(*graph, cluster), Error);
  const cluster::Cluster own =
      two_machines(", gpus: [0], devices: {kind: B9000, tflops: 1, memory_bandwidth_gb_per_s: 10}");
  EXPECT_TRUE(predict(program, own, {}).simulation);
}

// Tasks take what they take on the cluster's devices, and a CPU beside GPUs what was measured.
TEST(Placing, IsPricedOnTheClustersDevices) {
  const ir::Graph graph = load_graph("vgg16");
  const sim::DeviceRow& a100 = sim::find_device("A100", "test");
  double priced = 0;
  double measured = 0;
  for (const ir::Op& op : graph.ops) {
    priced += sim::roofline(op, graph.example_batch, a100.tflops, a100.memory_gb_per_s * 1e9).value;
    measured += op.cost.at(graph.example_batch).value;
  }
  const OnCluster gpus = on_cluster(graph, two_machines(", gpus: [0]"));
  double all = 0;
  for (const auto& task : gpus.tasks.tasks) all += task.cost * 1e-6;
  EXPECT_NEAR(all / priced, 1, 1e-9);
  EXPECT_EQ(gpus.devices[0].figures.speed, 1);
  EXPECT_EQ(gpus.devices[1].figures.speed, 1);
  // Of 40 GiB, 500 MB are CUDA's, and a twenty-first part of the rest the allocator's.
  EXPECT_NEAR(gpus.devices[1].figures.memory, (40.0 * (1 << 30) - 500e6) / 21 * 20, 21);
  ASSERT_GT(measured, 0);

  const OnCluster mixed = on_cluster(
      graph, cluster::parse_resource_spec(
                 "nodes:\n  - {address: a, gpus: [0], chief: true}\n  - {address: b}\n", "test"));
  EXPECT_NEAR(mixed.devices[1].figures.speed / (priced / measured), 1, 0.01);
}

}  // namespace
}  // namespace autodist::planning
