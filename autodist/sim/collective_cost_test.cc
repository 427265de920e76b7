#include "autodist/sim/collective_cost.h"

#include <gtest/gtest.h>

namespace autodist::sim {
namespace {

// ASTRA-sim's analytical backend, 1 MiB in 4 chunks at 50 GB/s, 500 ns.
TEST(StoreAndForward, IsAstraSimsToTheNanosecond) {
  const std::pair<std::int64_t, std::int64_t> expected[] = {
      {4, 43'000}, {8, 64'440}, {16, 99'640}, {64, 296'896}, {256, 1'079'200}, {1024, 4'206'616}};
  for (const auto& [ranks, ns] : expected) {
    EXPECT_EQ(store_and_forward_ns(StoreAndForward{}, 1 << 20, ranks), ns) << ranks;
  }
  EXPECT_EQ(store_and_forward_ns(StoreAndForward{}, 1 << 20, 1), 0);
}

TEST(AllReduce, AlphaBeta) {
  CollectiveCost cost;
  cost.start = Seconds{};
  cost.round = Seconds{};
  cost.efficiency = 1;
  CollectiveLinks links;
  links.ranks = 4;
  links.nodes = 4;
  links.node_bytes_per_s = 1e9;
  links.node_latency = Seconds(1e-5);
  EXPECT_NEAR(all_reduce_seconds(cost, links, Bytes(4'000'000)).value, 6 * (1e-5 + 1e-3), 1e-12);
  links.ranks = 1;
  EXPECT_EQ(all_reduce_seconds(cost, links, Bytes(4'000'000)).value, 0);
}

}  // namespace
}  // namespace autodist::sim
