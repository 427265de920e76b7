#include "autodist/search/autosync/batch_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "autodist/base/check.h"
#include "autodist/search/autosync/autosync.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/testing/small_problems.h"
#include "autodist/sim/bounds.h"

namespace autodist::search {
namespace {

using Shares = std::vector<std::int64_t>;

// Layers whose time is that of their samples; forward and backward, 30 ms for 4 of them.
std::shared_ptr<const ir::Graph> by_sample(int layer_count = 3) {
  ir::Graph graph =
      *layers(std::vector<std::int64_t>(static_cast<std::size_t>(layer_count), 10), 1e-3);
  for (ir::Op& op : graph.ops) {
    op.cost = {{}, op.cost.at(4) * 0.25};
    op.flops = {1'000'000'000, 0};
    op.bytes_moved = {8, 0};
  }
  return std::make_shared<const ir::Graph>(graph);
}

// A machine for every device, of so many TFLOP/s.
cluster::Cluster devices(const std::vector<double>& tflops, std::size_t chief = 0) {
  std::string text = "nodes:\n";
  for (std::size_t i = 0; i < tflops.size(); ++i) {
    text += fmt::format(
        "  - {{address: 10.0.0.{}, gpus: [0], network_bandwidth: 10{}, devices: {{kind: D{}, "
        "tflops: {}, memory_gib: 8, memory_bandwidth_gb_per_s: 1000}}}}\n",
        i + 1, i == chief ? ", chief: true" : "", i, tflops[i]);
  }
  return cluster::parse_resource_spec(text, "test");
}

program::Program program_on(const std::shared_ptr<const ir::Graph>& graph,
                            const cluster::Cluster& cluster, const Shares& shares = {}) {
  strategy::Strategy strategy = build_strategy("PSLoadBalancing", *graph, cluster);
  strategy.batch_shares = shares;
  return passes::rewrite(graph, strategy, cluster, {}, "test");
}

Shares balanced(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster) {
  return balanced_parts(program_on(graph, cluster), costs_on(cluster));
}

TEST(BatchShares, FollowTheDevicesSpeed) {
  EXPECT_EQ(balanced(by_sample(), devices({3, 1})), (Shares{6, 2}));
  EXPECT_EQ(balanced(by_sample(), devices({1, 2, 1})), (Shares{3, 6, 3}));
}

TEST(BatchShares, AreEqualWhereDevicesAre) {
  EXPECT_EQ(balanced(by_sample(), devices({2, 2, 2})), Shares{});
  EXPECT_EQ(balanced(by_sample(), devices({1})), Shares{});
}

TEST(BatchShares, AreEqualWhereTheBatchCannotBeSplitOtherwise) {
  ir::Graph graph = *by_sample();
  graph.batch_fixed_reason = "its batch is a constant";
  EXPECT_EQ(balanced(std::make_shared<const ir::Graph>(graph), devices({3, 1})), Shares{});
}

TEST(BatchShares, LeaveEveryReplicaASampleAndLoseNone) {
  const Shares parts = balanced(by_sample(), devices({100, 1, 1}));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}), 12);
  EXPECT_EQ(parts[1], 1);
  EXPECT_EQ(parts[2], 1);
}

// A step of four micro-batches of one sample each: parts that cannot be dealt out better stay
// equal.
TEST(BatchShares, NeverMakeTheSlowestSlower) {
  for (const std::int64_t micro_batches : {1, 2, 4, 5}) {
    for (const double speed : {1.2, 1.5, 2.0, 7.0, 1000.0}) {
      const cluster::Cluster cluster = devices({speed, 1});
      const auto costs_of = [&](const program::Program& program) {
        sim::CostOptions options;
        options.batch = 1;
        options.micro_batches = micro_batches;
        return sim::cost_model(program, cluster, options);
      };
      const auto slowest = [&](const program::Program& program) {
        const sim::CostModel costs = costs_of(program);
        return std::max(sim::compute_seconds(costs, program::Rank(0)),
                        sim::compute_seconds(costs, program::Rank(1)));
      };
      program::Program program = program_on(by_sample(), cluster);
      const Seconds equal = slowest(program);
      program.batch_shares = balanced_parts(program, costs_of);
      EXPECT_LE(slowest(program), equal) << speed << " times, " << micro_batches;
      if (micro_batches >= 4 && speed >= 7) {
        EXPECT_LT(slowest(program), equal * 0.6);
      }
      // No division of the samples computes in less than the bound says.
      const Seconds bound = sim::bounds_of(program, cluster, costs_of(program)).problem;
      for (std::int64_t first = 0; first <= 2 * micro_batches; ++first) {
        program::Program other = program_on(by_sample(), cluster);
        other.batch_shares = {1 + 1000 * first, 1 + 1000 * (2 * micro_batches - first)};
        EXPECT_LE(bound,
                  std::max(slowest(other), sim::bounds_of(other, cluster, costs_of(other)).card) *
                      (1 + 1e-9))
            << speed << " times, " << micro_batches << ", " << first;
      }
    }
  }
}

// Ranks begin with the chief's, replicas are in the file's order.
TEST(BatchShares, AreOfTheReplicasThatTheStrategyLists) {
  const auto graph = by_sample();
  const cluster::Cluster cluster = devices({1, 3}, /*chief=*/1);
  const program::Program program = program_on(graph, cluster);
  const Shares parts = balanced_parts(program, costs_on(cluster));
  EXPECT_EQ(parts, (Shares{6, 2})) << "the chief is the faster one";
  const Shares shares = by_replica(parts, program, cluster);
  EXPECT_EQ(shares, (Shares{2, 6}));
  EXPECT_EQ(program_on(graph, cluster, shares).batch_shares, parts);
}

// Both compute 22.5 of 30 ms: six samples of eight on the device that is three times as fast.
TEST(BatchShares, ShortenTheStepAndTheProblemsBound) {
  const auto graph = by_sample();
  const cluster::Cluster cluster = devices({3, 1});
  const Judge judge(graph, cluster, {}, costs_on(cluster));
  std::string why_not;
  strategy::Strategy strategy = build_strategy("PSLoadBalancing", *graph, cluster);
  const Judgement equal = *judge(strategy, why_not);
  strategy.batch_shares = {6, 2};
  const Judgement shared = *judge(strategy, why_not);
  EXPECT_LT(shared.step, equal.step * 0.6);
  EXPECT_LT(equal.problem_bound, equal.step * 0.6) << "no strategy's step may be below it";
  EXPECT_LE(equal.problem_bound, shared.step);
  EXPECT_LE(shared.problem_bound, shared.step);
}

TEST(BatchShares, AreFoundBySearch) {
  const auto graph = by_sample();
  const cluster::Cluster cluster = devices({3, 1});
  SearchOptions options;
  options.budget = {Seconds{}, 40};
  const SteadyClock clock;
  const Found found = search(graph, cluster, {}, costs_on(cluster), options, clock);
  EXPECT_EQ(found.best().strategy.batch_shares, (Shares{6, 2}));
  EXPECT_GT(found.speedup(), 1.5);
  // A builder is what it is elsewhere.
  for (const Candidate& candidate : found.candidates) {
    if (candidate.builder) {
      EXPECT_TRUE(candidate.strategy.batch_shares.empty()) << candidate.name;
    }
  }
}

}  // namespace
}  // namespace autodist::search
