#include "autodist/studies/strategies.h"

#include <gtest/gtest.h>

#include "autodist/planning/archive.h"

namespace autodist::studies {
namespace {

TEST(Strategies, ClustersAreThePapers) {
  const cluster::Cluster a =
      cluster::read_cluster(planning::shipped_clusters() + "/autosync-a.yml");
  const cluster::Cluster b =
      cluster::read_cluster(planning::shipped_clusters() + "/autosync-b.yml");
  EXPECT_EQ(cluster::ranks_of(a).size(), 11U);
  EXPECT_EQ(cluster::ranks_of(b).size(), 16U);
  EXPECT_EQ(a.nodes.front().bandwidth_bytes_per_s, 5e9);
  EXPECT_EQ(b.nodes.front().bandwidth_bytes_per_s, 6.25e9);
}

TEST(Strategies, ASearchedOneIsNotWorseThanABuildersAndNoBetterThanTheBound) {
  search::SearchOptions options;
  options.budget = {Seconds{}, 6};
  const StrategyRow row = compare_strategies(
      {"ncf", "ncf", 256, true},
      cluster::read_cluster(planning::shipped_clusters() + "/autosync-a.yml"), "A", options);
  EXPECT_EQ(row.own.size(), own_systems().size());
  for (const Seconds& step : row.own) EXPECT_GE(step, row.own[row.best_own()]);
  EXPECT_LE(row.found_step, row.builder_step);
  EXPECT_GE(row.found_step, row.problem_bound);
  EXPECT_LE(row.gain_over_own(), row.ideal_gain());
  EXPECT_EQ(row.simulations, 6U);
  EXPECT_EQ(strategy_figures({row}).at("gain_over_own_system_ncf"), row.gain_over_own());
}

// From the best plan with a library, two tables and the perceptron's sums must change together.
TEST(Strategies, WhatMayBeUsedBesidesMakesNoSearchedPlanSlower) {
  const cluster::Cluster cluster =
      cluster::read_cluster(planning::shipped_clusters() + "/autosync-b.yml");
  const auto step = [&](const search::Allowed& allowed) {
    search::SearchOptions options;
    options.budget = {Seconds{}, 60};
    options.allowed = allowed;
    return compare_strategies({"ncf", "ncf", 256, true}, cluster, "B", options).found_step;
  };
  search::Allowed without;
  std::erase(without.algorithms, strategy::AllReduceAlgorithm::kLibrary);
  EXPECT_LE(step({}), step(without) * 1.01);
}

}  // namespace
}  // namespace autodist::studies
