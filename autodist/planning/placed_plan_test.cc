#include "autodist/planning/placed_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/explanation.h"
#include "autodist/planning/placing.h"
#include "autodist/planning/searching.h"

namespace autodist::planning {
namespace {

// Two ranks of one machine with so much memory each; 0: unknown.
cluster::Cluster two_ranks(Bytes memory) {
  cluster::Node node;
  node.address = "localhost";
  node.chief = true;
  node.slots = 2;
  cluster::Device cpu;
  cpu.figures.memory = memory;
  node.cpus = {cpu};
  cluster::Cluster cluster;
  cluster.nodes = {node};
  return cluster;
}

Bytes most(const sim::Simulation& simulation) {
  Bytes most;
  for (const sim::MemoryUse& use : simulation.memory) most = std::max(most, use.device());
  return most;
}

SearchedPlan plan_on(const std::shared_ptr<const ir::Graph>& graph,
                     const cluster::Cluster& cluster) {
  SearchRequest request;
  request.options.budget = search::parse_budget("8");
  return search_plan(graph, cluster, request);
}

// A server has parameters to keep and no op to compute.
TEST(PlacedPlan, GivesServersNoStage) {
  cluster::Cluster cluster = two_ranks(Bytes{0});
  cluster::Node server;
  server.address = "10.0.0.9";
  server.role = cluster::NodeRole::kServer;
  server.cpus = {cluster::Device{}};
  cluster.nodes.push_back(server);
  const auto graph = std::make_shared<const ir::Graph>(load_graph("bert-small"));
  const OnCluster problem = on_cluster(*graph, cluster);
  ASSERT_EQ(problem.devices.size(), 2U);
  for (const NamedDevice& device : problem.devices) EXPECT_EQ(device.figures.node, 0U);
  const auto costs = [&](const program::Program& program) {
    return sim::cost_model(program, cluster);
  };
  const SimulatedPlan plan = plan_by_placement(graph, cluster, {}, costs, "");
  EXPECT_EQ(plan.program.stages, 2U);
  EXPECT_EQ(plan.strategy.replicas.size(), 2U);
  ASSERT_EQ(plan.program.ranks.size(), 3U);
  EXPECT_FALSE(plan.program.computes(program::Rank(2)));
  const auto in_micro_batches = [&](const program::Program& program, std::int64_t) {
    return costs(program);
  };
  EXPECT_TRUE(faster_by_placement(graph, cluster, {}, in_micro_batches, Seconds{1e6}, {}, nullptr));
}

TEST(PlacedPlan, TakesOverWhereNoReplicaFits) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("bert-small"));
  const SearchedPlan replicas = plan_on(graph, two_ranks(Bytes{0}));
  EXPECT_FALSE(replicas.program.is_placed());
  const cluster::Cluster roomy = two_ranks(Bytes{0});
  const auto costs = [&](const program::Program& program) {
    return sim::cost_model(program, roomy);
  };
  const SimulatedPlan stages = plan_by_placement(graph, roomy, {}, costs, "");
  EXPECT_EQ(stages.program.stages, 2U);
  EXPECT_GE(stages.simulation.step, stages.simulation.bounds.plan);

  const Bytes between((most(replicas.simulation) + most(stages.simulation)).value / 2);
  ASSERT_LT(most(stages.simulation), between);
  const SearchedPlan plan = plan_on(graph, two_ranks(between));
  EXPECT_TRUE(plan.program.is_placed());
  EXPECT_EQ(plan.name, "placed in 2 stages");
  EXPECT_NE(plan.placed_because.find("fits in memory"), std::string::npos) << plan.placed_because;
  EXPECT_LE(most(plan.simulation), between);
  EXPECT_NE(search_lines(plan).find("placed "), std::string::npos);
  SearchRequest request;
  request.options.budget = search::parse_budget("2");
  const cluster::Cluster cluster = two_ranks(between);
  for (const Explained& row : explain(graph, cluster, plan.strategy, request).variables) {
    EXPECT_TRUE(row.next_best.empty()) << "what the placement fixes has no next best";
  }
  const strategy::Strategy again = plan_on(graph, two_ranks(between)).strategy;
  EXPECT_EQ(again.placement, plan.strategy.placement);
  EXPECT_EQ(again.nodes, plan.strategy.nodes);
}

TEST(PlacedPlan, SaysThatAPlacementDoesNotFitEither) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("bert-small"));
  try {
    plan_on(graph, two_ranks(Bytes{1000}));
    ADD_FAILURE() << "found a plan";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInfeasible);
    EXPECT_NE(std::string(error.what()).find("Nor does a placement"), std::string::npos)
        << error.what();
  }
}

// On so many machines with links of so many Gbit/s.
SearchedPlan plan_across(int machines, double gbit_per_s,
                         const std::shared_ptr<const ir::Graph>& graph) {
  std::string text = "nodes:\n";
  for (int i = 1; i <= machines; ++i) {
    text += fmt::format("  - {{address: 10.0.0.{}, cpus: [0], network_bandwidth: {}{}}}\n", i,
                        gbit_per_s, i == 1 ? ", chief: true" : "");
  }
  SearchRequest request;
  request.options.budget = search::parse_budget("8");
  request.placing_share = 0.5;
  SearchedPlan plan = search_plan(graph, cluster::parse_resource_spec(text, "test"), request);
  EXPECT_FALSE(plan.program.is_placed());
  return plan;
}

TEST(PlacedPlan, IsOfferedWhereActivationsAreLessThanGradients) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("gpt-small"));
  EXPECT_FALSE(plan_across(2, 100, graph).placement) << "computing takes all of the time";
  SearchedPlan plan = plan_across(2, 0.02, graph);
  ASSERT_TRUE(plan.placement);
  EXPECT_LT(plan.placement->simulation.step, plan.simulation.step);
  EXPECT_EQ(plan.placement->program.micro_batches, 2U);
  const auto samples = [](const program::Program& program, const sim::CostModel& costs) {
    return costs.batch * costs.micro_batches * program.batch_parts();
  };
  EXPECT_EQ(samples(plan.placement->program, plan.placement->costs),
            samples(plan.program, plan.costs));
  EXPECT_NE(search_lines(plan).find("--placed takes it"), std::string::npos);
  take_placement(plan);
  EXPECT_TRUE(plan.program.is_placed());
  EXPECT_FALSE(plan.placement);
  EXPECT_NE(search_lines(plan).find("train it with --accumulate 2"), std::string::npos);
}

// Four stages of this graph made a descent go round in circles.
TEST(PlacedPlan, EndsOnFourMachines) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("vgg16-small"));
  const SearchedPlan plan = plan_across(4, 0.1, graph);
  ASSERT_TRUE(plan.placement);
  EXPECT_EQ(plan.placement->program.micro_batches, plan.placement->program.stages);
}

}  // namespace
}  // namespace autodist::planning
