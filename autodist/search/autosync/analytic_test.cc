#include "autodist/search/autosync/analytic.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "autodist/search/autosync/moves.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/testing/small_problems.h"

namespace autodist::search {
namespace {

// Random layers, some of them trained by rows.
std::shared_ptr<const ir::Graph> random_layers(std::mt19937_64& random) {
  std::vector<std::int64_t> widths(1 + draw(random, 6));
  for (std::int64_t& width : widths) width = static_cast<std::int64_t>(2 + draw(random, 400));
  ir::Graph graph = *layers(widths, draw(random, 2) == 0 ? 1e-4 : 5e-3);
  for (ir::Variable& variable : graph.variables) variable.sparse_gradient = draw(random, 4) == 0;
  return std::make_shared<const ir::Graph>(std::move(graph));
}

// A look-up of rows whose numbers are known beforehand, a dense layer, and a table that is not
// trained.
std::shared_ptr<const ir::Graph> random_lookup(std::mt19937_64& random) {
  const auto rows = static_cast<std::int64_t>(2 + draw(random, 5000));
  const auto width = static_cast<std::int64_t>(1 + draw(random, 64));
  ir::GraphBuilder step("lookup", 4);
  ir::Effects takes;
  takes.cost = {Seconds(1e-4), {}};
  const auto wide = ir::contiguous({ir::batch(), width});
  const auto numbers = step.input("numbers", ir::contiguous({ir::batch()}, DType::kInt64));
  const auto table = step.variable("table", ir::contiguous({rows, width}));
  const auto fixed = step.variable("fixed", ir::contiguous({rows, width}));
  const auto weight = step.variable("weight", ir::contiguous({width, width}));
  const auto looked = step.op("aten::embedding", {table, numbers}, wide, takes);
  const auto other = step.op("aten::embedding", {fixed, numbers}, wide, takes);
  const auto hidden = step.op("aten::add", {looked, other}, wide, takes);
  const auto y = step.op("aten::mm", {hidden, weight}, wide, takes);
  step.output(step.op("aten::mean", {y}, ir::contiguous({})));
  step.backward();
  const auto gradient = step.op("aten::ones_like", {y}, wide);
  step.gradient(weight,
                step.op("aten::mm", {hidden, gradient}, ir::contiguous({width, width}), takes));
  const auto back = step.op("aten::mm", {gradient, weight}, wide, takes);
  step.gradient(table,
                step.op("aten::embedding_sparse_backward", {back, numbers},
                        ir::contiguous({rows, width}), takes),
                /*sparse=*/true);
  return std::make_shared<const ir::Graph>(step.finish());
}

// One to four machines, of equal cards or not, with one device each or several, or of cores alone;
// and one that only serves.
cluster::Cluster random_machines(std::mt19937_64& random) {
  std::vector<double> rates(1 + draw(random, 4));
  const bool equal = draw(random, 2) == 0;
  for (double& rate : rates) rate = equal ? 1 : 0.5 + draw_unit(random);
  cluster::Cluster cluster = machines(rates, draw(random, 2) == 0 ? "0" : "0, 1");
  if (draw(random, 2) == 0) {
    for (cluster::Node& node : cluster.nodes) {
      node.gpus.clear();
      node.cpus = {cluster::Device{}};
    }
  }
  if (draw(random, 3) == 0) {
    cluster::Node server = cluster.nodes.front();
    server.address = "10.0.0.9";
    server.chief = false;
    server.role = cluster::NodeRole::kServer;
    server.gpus.clear();
    server.cpus = {cluster::Device{}};
    cluster.nodes.push_back(server);
  }
  return cluster;
}

Allowed all_allowed() {
  Allowed allowed;
  program::Compression largest{program::Codec::kTopK};
  largest.density = 0.1;
  allowed.compressions = {program::Compression{program::Codec::kBf16}, largest};
  allowed.most_staleness = 2;
  return allowed;
}

// A change as searches make them: of a variable or a class, of all groups, of everything, or none.
Point changed(const Space& space, const Neighbourhood& neighbourhood, const Point& point,
              std::mt19937_64& random) {
  Point next = point;
  switch (draw(random, 8)) {
    case 0:
      return sample(space, random);
    case 1:
      regroup(space, 1e5, next);
      return next;
    case 2:
      deal(space, next);
      return next;
    case 3:
      return next;
    default:
      return neighbourhood.draw_one(point, std::vector<double>(point.choices.size()), random);
  }
}

TEST(Analytic, GivesTheSameBitsByKeepingRows) {
  std::mt19937_64 random(1);
  for (int job = 0; job < 60; ++job) {
    const auto graph = job % 3 == 0 ? random_lookup(random) : random_layers(random);
    const cluster::Cluster cluster = random_machines(random);
    const Space space(*graph, cluster, all_allowed());
    const Neighbourhood neighbourhood(space);
    const Judge judge(graph, cluster, {}, costs_on(cluster));
    const program::Program program = judge.program_of(build_strategy("PS", *graph, cluster));
    const sim::CostModel costs = judge.costs_of(program);
    const Analytic analytic(space, program, costs);
    Analytic::Loads loads;
    Point point = sample(space, random);
    for (int i = 0; i < 50; ++i) {
      const Score fresh = analytic.score(point);
      const Score again = analytic.score(point, loads);
      ASSERT_EQ(again.step.value, fresh.step.value) << "job " << job << ", point " << i;
      ASSERT_EQ(again.rank, fresh.rank) << "job " << job << ", point " << i;
      ASSERT_EQ(analytic.bound_of(again), analytic.bound_of(fresh))
          << "job " << job << ", point " << i;
      point = changed(space, neighbourhood, point, random);
    }
  }
}

// A link-bound step of any algorithm is its cards' loads, which arithmetic and the simulator count
// each in its own way.
TEST(Analytic, CountsWhatEveryAlgorithmSendsAsTheSimulatorDoes) {
  const auto graph = layers({800, 800, 800, 800}, 1e-4);
  for (const cluster::Cluster& cluster :
       {machines({1, 1, 1, 1}), machines({1, 1}, "0, 1"), machines({1, 1, 1}, "0, 1, 2")}) {
    const Space space(*graph, cluster, one_slice_size());
    const Neighbourhood neighbourhood(space);
    const Judge judge(graph, cluster, {}, costs_on(cluster));
    const program::Program program = judge.program_of(build_strategy("PS", *graph, cluster));
    const sim::CostModel costs = judge.costs_of(program);
    const Analytic analytic(space, program, costs);
    std::set<strategy::AllReduceAlgorithm> seen;
    for (const Point& point : neighbourhood.uniform_points()) {
      const Choice& choice = point.choices.front();
      std::string why_not;
      const auto judged = judge(space.strategy_of(point), why_not);
      ASSERT_TRUE(judged) << why_not;
      const double scored = analytic.score(point).step / judged->simulated;
      EXPECT_GT(scored, 0.75) << strategy::name_of(choice.algorithm);
      EXPECT_LT(scored, 1.1) << strategy::name_of(choice.algorithm);
      seen.insert(choice.algorithm);
    }
    EXPECT_EQ(seen.count(strategy::AllReduceAlgorithm::kRing), 1u);
    EXPECT_EQ(seen.count(strategy::AllReduceAlgorithm::kTree), 1u);
  }
}

// Where messages count and not their bytes, ranks of a node take turns at what meets there and at
// what is passed on.
TEST(Analytic, CountsTheMessagesOfRanksThatTakeTurnsAsTheSimulatorDoes) {
  const auto graph = layers({800, 800, 800, 800}, 1e-6);
  const cluster::Cluster cluster = machines({100, 100, 100}, "0, 1, 2, 3, 4, 5, 6, 7");
  const Space space(*graph, cluster, one_slice_size());
  const Neighbourhood neighbourhood(space);
  const Judge judge(graph, cluster, {}, costs_on(cluster));
  const program::Program program = judge.program_of(build_strategy("PS", *graph, cluster));
  const sim::CostModel costs = judge.costs_of(program);
  const Analytic analytic(space, program, costs);
  for (const Point& point : neighbourhood.uniform_points()) {
    const Choice& choice = point.choices.front();
    if (choice.kind != ChoiceKind::kAllReduce) continue;
    std::string why_not;
    const auto judged = judge(space.strategy_of(point), why_not);
    ASSERT_TRUE(judged) << why_not;
    const double scored = analytic.score(point).step / judged->simulated;
    EXPECT_GT(scored, 0.6) << strategy::name_of(choice.algorithm);
    EXPECT_LT(scored, 1.2) << strategy::name_of(choice.algorithm);
  }
}

// Rows whose numbers nobody knows beforehand go from every member to all others, on its node and
// beyond.
TEST(Analytic, CountsGatheredRowsAsTheSimulatorDoes) {
  ir::Graph graph = *layers({800, 800, 800}, 1e-5);
  for (ir::Variable& variable : graph.variables) variable.sparse_gradient = true;
  const auto shared = std::make_shared<const ir::Graph>(std::move(graph));
  for (const cluster::Cluster& cluster :
       {machines({1}, "0, 1, 2, 3"), machines({1, 1}, "0, 1"), machines({1, 1, 1})}) {
    const Space space(*shared, cluster, one_slice_size());
    const Judge judge(shared, cluster, {}, costs_on(cluster));
    const strategy::Strategy strategy = build_strategy("AllReduce", *shared, cluster);
    const program::Program program = judge.program_of(strategy);
    ASSERT_TRUE(goes_to_all(program.exchange(ir::VariableId(0))));
    const sim::CostModel costs = judge.costs_of(program);
    const Analytic analytic(space, program, costs);
    std::string why_not;
    const auto judged = judge(strategy, why_not);
    ASSERT_TRUE(judged) << why_not;
    const double scored = analytic.score(space.point_of(strategy).value()).step / judged->simulated;
    EXPECT_GT(scored, 0.75) << cluster.nodes.size() << " nodes";
    EXPECT_LT(scored, 1.1) << cluster.nodes.size() << " nodes";
  }
}

// The engine's work takes from ops what it does beside them, and nothing while ranks wait: with
// much to compute the score is the simulator's step; with little it does not count that work twice.
TEST(Analytic, CountsTheEnginesWorkWhereItIsBesideOps) {
  for (const double seconds : {2e-1, 1e-6}) {
    const auto graph = layers({800, 800, 800, 800}, seconds);
    const cluster::Cluster cluster = machines({1, 1, 1, 1});
    const Space space(*graph, cluster, one_slice_size());
    const Judge judge(graph, cluster, {}, costs_on(cluster));
    const program::Program program = judge.program_of(build_strategy("PS", *graph, cluster));
    const sim::CostModel costs = judge.costs_of(program);
    const Analytic analytic(space, program, costs);
    std::mt19937_64 random(3);
    for (int i = 0; i < 40; ++i) {
      const Point point = sample(space, random);
      std::string why_not;
      const auto judged = judge(space.strategy_of(point), why_not);
      ASSERT_TRUE(judged) << why_not;
      const double scored = analytic.score(point).step / judged->simulated;
      EXPECT_LT(scored, 1.1) << "point " << i;
      if (seconds > 1e-3) {
        EXPECT_GT(scored, 0.95) << "point " << i;
      }
    }
  }
}

// By the simulator and by arithmetic alike.
TEST(Analytic, AgreesWithTheSimulatorOnFactors) {
  const auto graph = layers({700, 500, 600}, 2e-3);
  for (const double gbit : {0.02, 0.1, 10.0}) {
    const cluster::Cluster cluster = machines({gbit, gbit, gbit});
    const Space space(*graph, cluster);
    const Judge judge(graph, cluster, {}, costs_on(cluster));
    const strategy::Strategy strategy =
        build_strategy("AllReduce:algorithm=sufficient_factors", *graph, cluster);
    const program::Program program = judge.program_of(strategy);
    ASSERT_TRUE(goes_to_all(program.exchange(ir::VariableId(0))));
    const sim::CostModel costs = judge.costs_of(program);
    const Analytic analytic(space, program, costs);
    std::string why_not;
    const auto judged = judge(strategy, why_not);
    ASSERT_TRUE(judged) << why_not;
    const double scored = analytic.score(space.point_of(strategy).value()).step.value;
    EXPECT_NEAR(scored / judged->step.value, 1, 0.15) << gbit << " Gbit/s";
  }
}

}  // namespace
}  // namespace autodist::search
