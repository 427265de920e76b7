#include "autodist/app/placed_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/app/archive.h"
#include "autodist/app/explanation.h"
#include "autodist/app/searching.h"
#include "autodist/base/error.h"

namespace autodist::app {
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

TEST(PlacedPlan, TakesOverWhereNoReplicaFits) {
  const auto graph = std::make_shared<const ir::Graph>(load_graph("bert-small"));
  const SearchedPlan replicas = plan_on(graph, two_ranks(Bytes{0}));
  EXPECT_FALSE(replicas.program.is_placed());
  const cluster::Cluster roomy = two_ranks(Bytes{0});
  const auto costs = [&](const ir::Program& program) { return sim::cost_model(program, roomy); };
  const PlacedPlan stages = plan_by_placement(graph, roomy, {}, costs, "");
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

}  // namespace
}  // namespace autodist::app
