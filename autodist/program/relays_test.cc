#include "autodist/program/relays.h"

#include <gtest/gtest.h>

namespace autodist::program {
namespace {

// So many ranks on every node, and who is where.
struct Ranks {
  Program program;
  std::vector<std::uint32_t> members;
  std::vector<std::uint32_t> node_of_rank;
};
Ranks ranks_on(const std::vector<int>& nodes) {
  Ranks ranks;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    for (int i = 0; i < nodes[node]; ++i) {
      const auto rank = static_cast<std::uint32_t>(ranks.members.size());
      ranks.members.push_back(rank);
      ranks.node_of_rank.push_back(node);
      ranks.program.ranks.push_back({std::to_string(node), "", rank});
    }
  }
  return ranks;
}
Relay relay_on(const std::vector<int>& nodes, Route route) {
  const Ranks ranks = ranks_on(nodes);
  return relays_of(ranks.program, ranks.members, ranks.node_of_rank, nodes.size()).at(route);
}

// Each of four machines hands on three of four slices, and what is added meets three times.
TEST(Relay, ARingOfMachinesSendsAllButItsOwnSlices) {
  const Relay ring = relay_on({1, 1, 1, 1}, Route::kRing);
  for (const Relay::Node& node : ring.nodes) {
    EXPECT_DOUBLE_EQ(node.sent, 0.75);
    EXPECT_DOUBLE_EQ(node.received, 0.75);
    EXPECT_DOUBLE_EQ(node.inside, 0);
  }
  EXPECT_DOUBLE_EQ(ring.hops, 3);
  EXPECT_DOUBLE_EQ(ring.summed, 1.5);  // three pairs of contributions among four members
}

// A chain leaves a node once, unless the gap behind its owner is there: of two nodes with two
// ranks each a quarter of the gaps.
TEST(Relay, ARingLeavesANodeOnce) {
  const Relay ring = relay_on({2, 2}, Route::kRing);
  for (const Relay::Node& node : ring.nodes) {
    EXPECT_DOUBLE_EQ(node.sent, 0.75);
    EXPECT_DOUBLE_EQ(node.received, 0.75);
    EXPECT_DOUBLE_EQ(node.inside, 0.75);
    EXPECT_DOUBLE_EQ(node.busiest_across, 0.75) << "of slices that come or go at one of its ranks";
    EXPECT_DOUBLE_EQ(node.busiest_inside, 0.75);
  }
  for (const Relay::Node& node : relay_on({3, 3}, Route::kRing).nodes) {
    EXPECT_DOUBLE_EQ(node.busiest_across, 5.0 / 6);
    EXPECT_DOUBLE_EQ(node.busiest_inside, 2 * 5.0 / 6) << "the one in the middle";
  }
}

// Every slice crosses n - 1 links, whatever the tree; a binary one is not as deep as a chain.
TEST(Relay, ABinaryTreeHasFewerHopsThanAChain) {
  const Relay tree = relay_on({1, 1, 1, 1, 1, 1, 1, 1}, Route::kTree);
  double sent = 0;
  for (const Relay::Node& node : tree.nodes) sent += node.sent;
  EXPECT_DOUBLE_EQ(sent, 7);
  EXPECT_LT(tree.hops, 7);
  EXPECT_GE(tree.hops, 3);
}

}  // namespace
}  // namespace autodist::program
