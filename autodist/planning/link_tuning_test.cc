#include "autodist/planning/link_tuning.h"

#include <gtest/gtest.h>

#include "autodist/ir/graph_builder.h"

namespace autodist::planning {
namespace {

comm::LinkFigures link(double bits_per_s, Seconds message_cost) {
  return {bits_per_s / 8, Seconds{0.0002}, message_cost};
}

constexpr Bytes kMuch{1 << 30};

TEST(LinkTuning, SlicesGrowWithTheRateAndWithWhatAMessageCosts) {
  const Seconds cost{60e-6};
  EXPECT_EQ(tune(link(50e6, cost), kMuch), (LinkTuning{Bytes{64 << 10}, Bytes{128 << 10}}));
  EXPECT_EQ(tune(link(250e6, cost), kMuch), (LinkTuning{Bytes{64 << 10}, Bytes{256 << 10}}));
  EXPECT_EQ(tune(link(1e9, cost), kMuch), (LinkTuning{Bytes{256 << 10}, Bytes{1 << 20}}));
  EXPECT_EQ(tune(link(1e9, cost * 2), kMuch).slice, Bytes{512 << 10});
}

TEST(LinkTuning, SlicesAreSmallerWhereLittleIsExchanged) {
  const Seconds cost{60e-6};
  EXPECT_EQ(tune(link(100e6, cost), Bytes{150'000}),
            (LinkTuning{Bytes{16 << 10}, Bytes{64 << 10}}));
  EXPECT_EQ(tune(link(1e9, cost), Bytes{150'000}), (LinkTuning{Bytes{32 << 10}, Bytes{512 << 10}}));
  EXPECT_EQ(tune(link(1e9, cost), Bytes{4'000'000}).slice, Bytes{128 << 10});
  EXPECT_EQ(tune(link(1e9, cost), Bytes{0}).slice, Bytes{16 << 10});
}

TEST(LinkTuning, SizesStayWithinBounds) {
  const LinkTuning fast = tune(link(1e12, Seconds{1e-3}), kMuch);
  EXPECT_EQ(fast.slice, Bytes{1 << 20});
  EXPECT_EQ(fast.window, Bytes{16 << 20});
  EXPECT_EQ(tune(link(1e6, Seconds{0}), kMuch).slice, Bytes{16 << 10});
}

// One trained variable of so many float32 elements.
ir::Graph graph_of(std::int64_t elements) {
  ir::GraphBuilder step("linear", 10);
  const auto x = step.input("x", ir::contiguous({ir::batch(), 1}));
  const auto w = step.variable("w", ir::contiguous({1, elements}));
  const auto y = step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), elements}));
  step.output(step.op("aten::mean", {y}, ir::contiguous({})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, y}, ir::contiguous({1, elements})));
  return step.finish();
}

TEST(LinkTuning, WhatAStrategySaysStays) {
  strategy::Strategy strategy;
  strategy.slice_bytes = Bytes{1 << 20};
  put_tuning(link(250e6, Seconds{60e-6}), graph_of(1 << 20), strategy);
  EXPECT_EQ(strategy.slice_bytes, Bytes{1 << 20});
  EXPECT_EQ(strategy.window_bytes, Bytes{2 << 20});  // never below two slices
  strategy.window_bytes = Bytes{4096};
  put_tuning(link(1e9, Seconds{60e-6}), graph_of(1 << 20), strategy);
  EXPECT_EQ(strategy.window_bytes, Bytes{4096});
}

cluster::Cluster two_nodes(double slow_bits_per_s) {
  cluster::Cluster cluster;
  cluster.nodes.resize(2);
  for (cluster::Node& node : cluster.nodes) node.cpus.resize(1);
  cluster.nodes[1].bandwidth_bytes_per_s = slow_bits_per_s / 8;
  return cluster;
}

TEST(LinkTuning, ALibraryIsPricedAsItWasMeasured) {
  const cluster::Cluster cluster = two_nodes(250e6);
  const comm::LibraryFigures measured{Seconds{4.9e-3}, 20e6};
  sim::CostModel costs;
  sim::apply(library_costs(measured, 2, cluster), costs);
  sim::CollectiveLinks links;
  links.ranks = links.nodes = 2;
  links.node_bytes_per_s = 250e6 / 8 * costs.engine.goodput;
  links.node_latency = cluster.nodes[0].latency;
  const auto seconds = [&](std::int64_t bytes) {
    return sim::all_reduce_seconds(costs.collectives, links, Bytes{bytes}).value;
  };
  EXPECT_NEAR(seconds(8), 4.9e-3, 0.2 * 4.9e-3);
  EXPECT_NEAR(seconds(4'000'000) - seconds(0), 0.2, 0.2 * 0.2);
  // Measured again, a little differently.
  EXPECT_EQ(library_costs({Seconds{4.95e-3}, 20.2e6}, 2, cluster),
            library_costs(measured, 2, cluster));
}

// What is measured over a narrow uplink or link within a node is not taken for the library's own.
TEST(LinkTuning, ALibraryIsMeasuredAgainstTheNarrowestOfItsLinks) {
  cluster::Cluster cluster = two_nodes(1e9);
  cluster.nodes[0].address = "a";
  cluster.nodes[1].address = "b";
  const comm::LibraryFigures measured{Seconds{4.9e-3}, 10e6};
  const double plain = library_costs(measured, 2, cluster).at("collective_efficiency");
  cluster.switches = {{"r", {"a"}, 8}, {"s", {"b"}, 8}};
  EXPECT_NEAR(library_costs(measured, 2, cluster).at("collective_efficiency"), 8 * plain, 0.05);
  cluster.switches.clear();
  for (cluster::Node& node : cluster.nodes) {
    node.slots = 2;
    node.intra_node_bytes_per_s = node.bandwidth_bytes_per_s / 8;
  }
  EXPECT_GT(library_costs(measured, 4, cluster).at("collective_efficiency"), 6 * plain);
}

TEST(LinkTuning, PredictionsTakeTheSlowestDeclaredLink) {
  const auto links = declared_links(two_nodes(250e6));
  ASSERT_TRUE(links.has_value());
  EXPECT_LT(links->bandwidth_bytes_per_s, 250e6 / 8);  // payload
  passes::Options options;
  tune_to(links, graph_of(1 << 28), options);
  EXPECT_EQ(options.slice_bytes, Bytes{128 << 10});
  EXPECT_EQ(options.window, Bytes{256 << 10});
  tune_to(links, graph_of(1 << 14), options);
  EXPECT_EQ(options.slice_bytes, Bytes{16 << 10});
}

TEST(LinkTuning, RanksOfOneMachineKeepTheDefaults) {
  cluster::Cluster cluster;
  cluster.nodes.resize(1);
  passes::Options options;
  tune_to(declared_links(cluster), graph_of(1 << 20), options);
  EXPECT_EQ(options.slice_bytes, passes::Options{}.slice_bytes);
  EXPECT_EQ(options.window, Bytes{0});
}

}  // namespace
}  // namespace autodist::planning
