#include "autodist/sim/what_if.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/sim/device_table.h"

namespace autodist::sim {
namespace {

cluster::Cluster two_nodes() {
  return cluster::parse_resource_spec(
      "nodes:\n  - {address: a, chief: true}\n  - {address: b, gpus: [0, 1]}\n", "test");
}

TEST(WhatIf, ChangesWhatItNames) {
  const WhatIf what_if = parse_what_if("nodes=4,bandwidth=25,latency=1e-5,device=a 100,batch=8");
  EXPECT_EQ(what_if.device, "A100");
  EXPECT_EQ(what_if.batch, 8);
  const cluster::Cluster changed = sim::changed(two_nodes(), what_if);
  ASSERT_EQ(changed.nodes.size(), 4U);
  EXPECT_EQ(changed.nodes[3].address, "what-if-4");
  EXPECT_EQ(changed.nodes[3].gpus.size(), 2U) << "as the last one that computes";
  EXPECT_FALSE(changed.nodes[3].chief);
  for (const cluster::Node& node : changed.nodes) {
    EXPECT_EQ(node.bandwidth_bytes_per_s, 25e9 / 8);
    EXPECT_EQ(node.latency, Seconds(1e-5));
  }
  EXPECT_EQ(sim::changed(two_nodes(), WhatIf{}), two_nodes());
  EXPECT_EQ(sim::changed(two_nodes(), parse_what_if("nodes=1")).nodes.size(), 1U);
}

TEST(WhatIf, RefusesWhatMakesNoSense) {
  for (const char* text : {"node=3", "nodes=0", "nodes=x", "bandwidth=-1", "bandwidth", "batch=0",
                           "device=A1000000", "latency=nan"}) {
    EXPECT_THROW(parse_what_if(text), Error) << text;
  }
  cluster::Cluster cluster = two_nodes();
  std::swap(cluster.nodes[0], cluster.nodes[1]);
  EXPECT_THROW(sim::changed(cluster, parse_what_if("nodes=1")), Error) << "without the chief";
}

TEST(DeviceTable, HasFiguresAndSources) {
  for (const DeviceRow& row : device_table()) {
    EXPECT_GT(row.tflops, 0) << row.kind;
    EXPECT_GT(row.memory_gb_per_s, 0) << row.kind;
    EXPECT_FALSE(row.source.empty()) << row.kind;
    EXPECT_EQ(&find_device(row.kind, "test"), &row);
  }
  EXPECT_EQ(find_device("titanx", "test").kind, "TITAN X");
}

}  // namespace
}  // namespace autodist::sim
