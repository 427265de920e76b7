#include "autodist/planning/transition_seconds.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "autodist/base/check.h"
#include "autodist/passes/testing/small_jobs.h"

namespace autodist::planning {
namespace {

using program::Rank;

// Ranks 0 and 1 on one machine, 2 and 3 on one each. Cards carry 100, 100 and 50 bytes per second,
// memory 1000.
class TransitionSeconds : public ::testing::Test {
 protected:
  TransitionSeconds() : cluster_(passes::hosts(3)) {
    for (cluster::Node& node : cluster_.nodes) {
      node.bandwidth_bytes_per_s = 100;
      node.intra_node_bytes_per_s = 1000;
    }
    cluster_.nodes[2].bandwidth_bytes_per_s = 50;
    for (const char* node : {"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
      program_.ranks.emplace_back();
      program_.ranks.back().node = node;
    }
  }
  void move(std::uint32_t from, std::uint32_t to, std::int64_t bytes) {
    transition_.moves.push_back(
        {program::State::kRule, ir::VariableId(0), Rank(from), Rank(to), {{0, bytes}}});
  }
  [[nodiscard]] double seconds() const {
    const auto bytes_of = [](const program::Move& move) {
      return Bytes(program::element_count(move));
    };
    return transition_seconds(transition_, program_, cluster_, bytes_of).value;
  }

  program::Program program_;
  program::Transition transition_;
  cluster::Cluster cluster_;
};

TEST_F(TransitionSeconds, AreNoneWhereNothingMoves) { EXPECT_EQ(seconds(), 0); }

TEST_F(TransitionSeconds, AreThoseOfTheBusiestCard) {
  move(0, 2, 200);
  EXPECT_DOUBLE_EQ(seconds(), 2);
  move(1, 2, 100);  // the same two cards
  EXPECT_DOUBLE_EQ(seconds(), 3);
  move(2, 0, 250);  // the other direction of both
  EXPECT_DOUBLE_EQ(seconds(), 3);
}

TEST_F(TransitionSeconds, AreTheReceiversWhereItsCardIsSlower) {
  move(0, 3, 200);
  EXPECT_DOUBLE_EQ(seconds(), 4);
  move(2, 3, 50);  // from another sender
  EXPECT_DOUBLE_EQ(seconds(), 5);
}

TEST_F(TransitionSeconds, AreTheMemorysWhereItStaysOnANode) {
  move(0, 1, 500);
  move(1, 0, 500);
  EXPECT_DOUBLE_EQ(seconds(), 1);
}

TEST_F(TransitionSeconds, AreOfAProgramForTheCluster) {
  program_.ranks[3].node = "10.0.0.9";
  move(0, 3, 1);
  EXPECT_THROW((void)seconds(), InternalError);
}

}  // namespace
}  // namespace autodist::planning
