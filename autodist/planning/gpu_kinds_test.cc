#include "autodist/planning/gpu_kinds.h"

#include <gtest/gtest.h>

#include "autodist/sim/device_table.h"

namespace autodist::planning {
namespace {

cluster::Node node_of(const std::string& devices) {
  return cluster::parse_resource_spec("nodes: [{address: localhost, gpus: [0, 1]" + devices + "}]",
                                      "c")
      .nodes.front();
}

TEST(GpuKinds, AreTheDriversWhereTheFileSaysNothing) {
  cluster::Node node = node_of("");
  name_gpus(node, "NVIDIA A100-SXM4-80GB");
  for (const cluster::Device& each : node.gpus) {
    EXPECT_EQ(each.figures.kind, "A100 80GB");
    EXPECT_FALSE(sim::is_assumed(each));
  }
}

TEST(GpuKinds, StayAsTheFileHasThem) {
  for (const char* said :
       {", devices: {kind: V100}",
        ", devices: {tflops: 10, memory_gib: 8, memory_bandwidth_gb_per_s: 300}"}) {
    cluster::Node node = node_of(said);
    const cluster::Node before = node;
    name_gpus(node, "NVIDIA A100-SXM4-80GB");
    EXPECT_EQ(node, before) << said;
  }
}

TEST(GpuKinds, ThatTheTableDoesNotHaveStayAssumed) {
  for (const char* model : {"", "NVIDIA Something 9000"}) {
    cluster::Node node = node_of("");
    name_gpus(node, model);
    EXPECT_TRUE(sim::is_assumed(node.gpus.front())) << model;
  }
}

}  // namespace
}  // namespace autodist::planning
