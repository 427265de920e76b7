#include "autodist/search/autosync/space.h"

#include <gtest/gtest.h>

#include "autodist/search/autosync/moves.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/testing/small_problems.h"

namespace autodist::search {
namespace {

Choice on_servers(std::vector<std::uint32_t> places) {
  Choice choice;
  choice.places = std::move(places);
  return choice;
}

Choice reduced(std::uint32_t group) {
  Choice choice = on_servers({group});
  choice.kind = ChoiceKind::kAllReduce;
  return choice;
}

std::string reason(const Space& space, const Choice& choice) {
  return space.why_not(ir::VariableId(0), choice).value_or("legal");
}

TEST(Space, SaysWhyAChoiceIsNotLegal) {
  const auto graph = layers({12}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1});
  const Space space(*graph, cluster);
  EXPECT_EQ(reason(space, on_servers({0, 1, 0})), "legal");
  EXPECT_EQ(reason(space, on_servers({2})), "'w0': server 2, there are 2");
  EXPECT_EQ(reason(space, on_servers(std::vector<std::uint32_t>(13, 0))),
            "'w0' has 12 rows along axis 0, cannot be split in 13");
  Choice choice = on_servers({0, 1});
  choice.axis = 2;
  EXPECT_EQ(reason(space, choice), "'w0' has 2 axes, no axis 2");
  choice = on_servers({0});
  choice.proxy = true;
  EXPECT_EQ(reason(space, choice), "'w0' is dense: every replica has a copy of it anyway");
  choice = on_servers({0});
  choice.staleness = 1;
  EXPECT_EQ(reason(space, choice), "'w0' with staleness 1, at most 0 allowed");
  choice = reduced(0);
  choice.compression.codec = program::Codec::kFp16;
  EXPECT_EQ(reason(space, choice), "'w0': fp16 changes what is computed and was not allowed");
  choice = reduced(0);
  choice.algorithm = strategy::AllReduceAlgorithm::kLibrary;
  EXPECT_EQ(reason(space, choice), "legal");
  choice.update_at = program::UpdateAt::kOwner;
  EXPECT_EQ(reason(space, choice), "'w0': this algorithm needs update_at=every_rank");
  Allowed direct;
  direct.algorithms = {strategy::AllReduceAlgorithm::kDirect};
  EXPECT_NE(reason(Space(*graph, cluster, direct), choice), "legal") << "was not allowed";
}

TEST(Space, AddsOnANodeWhereReplicasShareOne) {
  const auto graph = layers({12}, 1e-3);
  const cluster::Cluster alone = machines({1, 1, 1});
  const cluster::Cluster shared = machines({1, 1}, "0, 1");
  Choice choice = reduced(0);
  choice.algorithm = strategy::AllReduceAlgorithm::kHierarchical;
  choice.update_at = program::UpdateAt::kOwner;
  EXPECT_EQ(reason(Space(*graph, shared), choice), "legal");
  for (const cluster::Cluster& other : {alone, machines({1}, "0, 1, 2")}) {
    EXPECT_EQ(reason(Space(*graph, other), choice),
              "'w0': algorithm=hierarchical is not among those allowed");
  }
}

TEST(Space, TakesFactorsWhereTheyAreSmallerThanTheGradient) {
  // Two factors of 32 numbers each, to two others: 3 x 64 against 2 x 144 and 2 x 16.
  const auto graph = layers({12, 4}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1, 1});
  const Space space(*graph, cluster);
  Choice choice = reduced(0);
  choice.algorithm = strategy::AllReduceAlgorithm::kSufficientFactors;
  EXPECT_EQ(reason(space, choice), "legal");
  EXPECT_EQ(space.why_not(ir::VariableId(1), choice),
            "'w1': this algorithm needs a gradient that is a product of two small matrices");
  choice.places = {0, 1};
  EXPECT_EQ(reason(space, choice), "'w0': this algorithm needs the variable in one piece");
  choice.places = {0};
  choice.update_at = program::UpdateAt::kOwner;
  EXPECT_EQ(reason(space, choice), "'w0': this algorithm needs update_at=every_rank");
  EXPECT_EQ(reason(Space(*layers({4}, 1e-3), cluster), choice),
            "'w0': algorithm=sufficient_factors is not among those allowed")
      << "of no variable";
  constexpr std::int64_t kLargeBatch = 1'000'000;
  EXPECT_EQ(reason(Space(*graph, cluster, {}, kLargeBatch), choice),
            "'w0': algorithm=sufficient_factors is not among those allowed")
      << "nor of any with so many samples";
}

TEST(Space, KeepsTheRowsOfSparseVariablesTogether) {
  ir::Graph graph = *layers({12}, 1e-3);
  graph.variables.front().sparse_gradient = true;
  const cluster::Cluster cluster = machines({1, 1});
  const Space space(graph, cluster);
  Choice choice = on_servers({0, 1});
  choice.axis = 1;
  EXPECT_EQ(reason(space, choice),
            "'w0' has a sparse gradient, whose rows travel whole: split axis 0");
  choice = reduced(0);
  choice.update_at = program::UpdateAt::kOwner;
  EXPECT_EQ(reason(space, choice), "'w0' is trained by rows, which their owners update anyway");
}

TEST(Space, OptsInToWhatChangesNumbers) {
  const auto graph = layers({12}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1});
  const std::size_t before = Space(*graph, cluster).options(ir::VariableId(0)).size();
  Allowed allowed;
  allowed.most_staleness = 2;
  program::Compression half;
  half.codec = program::Codec::kFp16;
  allowed.compressions = {half};
  const Space space(*graph, cluster, allowed);
  EXPECT_GT(space.options(ir::VariableId(0)).size(), 2 * before);
  Choice choice = on_servers({0});
  choice.staleness = 3;
  EXPECT_EQ(reason(space, choice), "'w0' with staleness 3, at most 2 allowed");
  choice.staleness = 2;
  EXPECT_EQ(reason(space, choice), "legal");
}

TEST(Space, HoldsEveryBuildersStrategy) {
  const auto graph = layers({40, 12, 64, 7}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1, 1});
  const Space space(*graph, cluster);
  for (const Builder& builder : builders()) {
    const strategy::Strategy built = build_strategy(builder.name, *graph, cluster);
    const auto point = space.point_of(built);
    ASSERT_TRUE(point) << builder.name;
    const auto slices = [&](const strategy::Strategy& strategy) {
      return passes::rewrite(graph, strategy, cluster, {}, builder.name).slices;
    };
    EXPECT_EQ(slices(space.strategy_of(*point)), slices(built)) << builder.name;
  }
  EXPECT_FALSE(space.point_of(build_strategy("PS:sync=false", *graph, cluster)));
}

TEST(Moves, ChangeTheAlgorithmOfAGroupWhereThatIsLegal) {
  const auto graph = layers({40, 40, 4, 40}, 1e-3);
  const cluster::Cluster cluster = machines({1, 1, 1});
  const Space space(*graph, cluster);
  Point point;
  point.choices = {reduced(0), reduced(0), reduced(0), reduced(3)};
  point.choices[1] = on_servers({1});
  const Point before = point;
  reduce_by(space, strategy::AllReduceAlgorithm::kSufficientFactors, program::UpdateAt::kEveryRank,
            point, 0);
  EXPECT_EQ(point.choices[0].algorithm, strategy::AllReduceAlgorithm::kSufficientFactors);
  EXPECT_EQ(point.choices[1], before.choices[1]) << "is on a server";
  EXPECT_EQ(point.choices[2], before.choices[2]) << "is smaller than its factors";
  EXPECT_EQ(point.choices[3], before.choices[3]) << "is in another group";
  reduce_by(space, strategy::AllReduceAlgorithm::kDirect, program::UpdateAt::kOwner, point);
  for (const std::size_t each : {0U, 2U, 3U}) {
    EXPECT_EQ(point.choices[each].update_at, program::UpdateAt::kOwner) << each;
  }
}

TEST(Space, OptionsSamplesAndNeighboursAreLegal) {
  const auto graph = layers({40, 12, 40, 7}, 1e-3);
  const cluster::Cluster cluster = machines({1, 10, 1});
  const Space space(*graph, cluster);
  const Neighbourhood neighbourhood(space);
  const auto expect_legal = [&](const Point& point) {
    for (std::size_t i = 0; i < point.choices.size(); ++i) {
      EXPECT_EQ(space.why_not(ir::VariableId(i), point.choices[i]).value_or(""), "");
    }
  };
  for (std::size_t i = 0; i < graph->variables.size(); ++i) {
    for (const Choice& choice : space.options(ir::VariableId(i))) {
      EXPECT_EQ(space.why_not(ir::VariableId(i), choice).value_or(""), "");
    }
  }
  std::mt19937_64 random(7);
  Point point = sample(space, random);
  std::size_t moved = 0;
  for (int i = 0; i < 300; ++i) {
    expect_legal(point);
    const Point next = neighbourhood.draw_one(point, {0, 0, 0, 0}, random);
    if (!(next == point)) ++moved;
    point = i % 50 == 49 ? sample(space, random) : next;
  }
  EXPECT_GT(moved, 150U);
  strategy::check(space.strategy_of(point), *graph, cluster, "sample");
}

TEST(Moves, DealShardsInProportionToBandwidth) {
  const auto graph = layers({64}, 1e-3);
  const cluster::Cluster cluster = machines({1, 3});
  const Space space(*graph, cluster);
  Point point;
  point.choices = {on_servers(std::vector<std::uint32_t>(16, 0))};
  deal(space, point);
  const auto& places = point.choices.front().places;
  EXPECT_EQ(std::count(places.begin(), places.end(), 0U), 4);
  EXPECT_EQ(std::count(places.begin(), places.end(), 1U), 12);
}

TEST(Moves, LikeLayersAreOneClass) {
  const auto graph = layers({8, 16, 8, 16, 8}, 1e-3);
  const auto classes = classes_of(*graph);
  ASSERT_EQ(classes.size(), 2U);
  EXPECT_EQ(classes[0].size(), 2U) << "largest bytes first";
  EXPECT_EQ(classes[1].size(), 3U);
}

}  // namespace
}  // namespace autodist::search
