#include "tools/learned_placer/reinforce.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/search/placement/generators.h"
#include "autodist/search/placement/placeto_simulator.h"

namespace autodist::learned {
namespace {

namespace placement = search::placement;

// Two chains of long tasks between a source and a sink: half of the step is saved by parting them.
placement::TaskGraph two_chains() {
  placement::TaskGraph graph;
  graph.name = "two chains";
  const auto add = [&](const std::string& name, double cost, std::vector<std::uint32_t> inputs) {
    placement::Task task;
    task.name = name;
    task.cost = cost;
    for (const std::uint32_t input : inputs) task.inputs.push_back({placement::TaskId(input), 0});
    task.outputs.push_back({1000, {}});
    graph.tasks.push_back(task);
    return static_cast<std::uint32_t>(graph.tasks.size() - 1);
  };
  const std::uint32_t source = add("source", 10, {});
  std::uint32_t left = source;
  std::uint32_t right = source;
  for (int i = 0; i < 4; ++i) {
    left = add("left" + std::to_string(i), 2000, {left});
    right = add("right" + std::to_string(i), 2000, {right});
  }
  add("sink", 10, {left, right});
  return graph;
}

Trained trained(const placement::TaskGraph& graph, Network network, std::uint32_t episodes,
                std::uint64_t seed = 0) {
  torch::set_num_threads(1);
  torch::manual_seed(seed);
  TrainingOptions options;
  options.devices = 2;
  options.episodes = episodes;
  options.seed = seed;
  Policy policy(network, 2);
  return train(graph, policy, options);
}

class EveryNetwork : public testing::TestWithParam<Network> {};

TEST_P(EveryNetwork, FindsTheTwoChains) {
  const placement::TaskGraph graph = two_chains();
  const Trained result = trained(graph, GetParam(), 60);
  placement::PlacetoSimulator simulator(graph, 2);
  const double alone = simulator.run(placement::Placement(graph.tasks.size(), 0));
  EXPECT_LT(result.time, 0.75 * alone);
  EXPECT_EQ(simulator.run(result.placement), result.time) << "the placement is the one of the time";
  EXPECT_EQ(result.simulations, 60 * (graph.tasks.size() + 1));
  ASSERT_EQ(result.best_after.size(), 60U);
  EXPECT_TRUE(std::is_sorted(result.best_after.rbegin(), result.best_after.rend()));
}

TEST_P(EveryNetwork, SaysTheSameAgain) {
  const placement::TaskGraph graph = placement::generate("recurrent", 1);
  const Trained once = trained(graph, GetParam(), 2, 7);
  const Trained again = trained(graph, GetParam(), 2, 7);
  EXPECT_EQ(once.placement, again.placement);
  EXPECT_EQ(once.time, again.time);
  EXPECT_NE(trained(graph, GetParam(), 2, 8).best_after, once.best_after)
      << "the seed says nothing";
}

INSTANTIATE_TEST_SUITE_P(, EveryNetwork,
                         testing::Values(Network::kPlaceto, Network::kSage, Network::kPgnn));

// A search by luck alone would leave the policy as it was drawn.
TEST(Reinforce, TrainingMovesTheWeights) {
  torch::set_num_threads(1);
  torch::manual_seed(3);
  const placement::TaskGraph graph = two_chains();
  Policy policy(Network::kPlaceto, 2);
  std::vector<torch::Tensor> before;
  for (const torch::Tensor& each : policy->parameters()) before.push_back(each.detach().clone());
  TrainingOptions options;
  options.devices = 2;
  options.episodes = 20;
  const auto changed = [&] {
    const std::vector<torch::Tensor> after = policy->parameters();
    return !std::equal(before.begin(), before.end(), after.begin(),
                       [](const auto& a, const auto& b) { return a.equal(b); });
  };
  options.learns = false;
  EXPECT_LT(train(graph, policy, options).time, 16020) << "luck finds something, too";
  EXPECT_FALSE(changed());
  options.learns = true;
  train(graph, policy, options);
  EXPECT_TRUE(changed());
}

TEST(Reinforce, ColoursMoveTogether) {
  placement::TaskGraph graph = two_chains();
  for (std::size_t i = 1; i + 1 < graph.tasks.size(); ++i) graph.tasks[i].colour = i % 2;
  const Trained result = trained(graph, Network::kSage, 30);
  for (std::size_t i = 3; i + 1 < graph.tasks.size(); ++i) {
    EXPECT_EQ(result.placement[i], result.placement[i - 2]);
  }
  EXPECT_EQ(result.simulations, 30 * (4U + 1)) << "source, two chains, sink";
}

TEST(Reinforce, NetworksHaveNames) {
  EXPECT_EQ(parse_network("sage"), Network::kSage);
  try {
    parse_network("gcn");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("one of placeto, sage, pgnn"), std::string::npos);
  }
}

}  // namespace
}  // namespace autodist::learned
