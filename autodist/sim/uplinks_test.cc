#include "autodist/sim/uplinks.h"

#include <gtest/gtest.h>

#include <limits>

namespace autodist::sim {
namespace {

cluster::Cluster four_in_two_racks(double oversubscription) {
  cluster::Cluster cluster;
  for (const char* name : {"a", "b", "c", "d"}) cluster.nodes.emplace_back().address = name;
  cluster.switches = {{"r", {"a", "b"}, oversubscription}, {"s", {"c", "d"}, oversubscription}};
  return cluster;
}

TEST(Uplinks, ARingThatGoesRackByRackHasAnUplinkForOneMessage) {
  const Uplinks uplinks(four_in_two_racks(16), {8, 8, 8, 8});
  EXPECT_EQ(uplinks.rates(), std::vector<double>(4, 1.0));  // (8 + 8) / 16
  EXPECT_EQ(uplinks.least_of_ring({0, 1, 2, 3}), 1);
  EXPECT_EQ(uplinks.least_of_ring({0, 0, 1, 1, 2, 3, 3}), 1);
}

TEST(Uplinks, ARingThatGoesToAndFroSharesThem) {
  const Uplinks uplinks(four_in_two_racks(16), {8, 8, 8, 8});
  EXPECT_EQ(uplinks.least_of_ring({0, 2, 1, 3}), 0.5);
}

TEST(Uplinks, ARingInOneRackPassesNone) {
  const Uplinks uplinks(four_in_two_racks(16), {8, 8, 8, 8});
  EXPECT_EQ(uplinks.least_of_ring({2, 3}), std::numeric_limits<double>::infinity());
  const Uplinks none(cluster::Cluster{}, {});
  EXPECT_EQ(none.least_of_ring({0, 1}), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace autodist::sim
