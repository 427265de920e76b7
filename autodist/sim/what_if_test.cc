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

TEST(WhatIf, OneKeyMayVary) {
  const auto values = [](const std::string& text) {
    std::string all;
    for (const WhatIfs::Each& each : parse_what_ifs(text).each) all += each.value + " ";
    return all;
  };
  EXPECT_EQ(values("nodes=1..16"), "1 2 4 8 16 ");
  EXPECT_EQ(values("nodes=3..12"), "3 4 8 12 ");
  EXPECT_EQ(values("nodes=4..4"), " ") << "one value does not vary";
  EXPECT_EQ(parse_what_ifs("nodes=4..4").each.front().what_if.nodes, 4U);
  EXPECT_EQ(values("latency=1e-5,bandwidth=10|25|100,nodes=4"), "10 25 100 ");
  const WhatIfs links = parse_what_ifs("nodes=4,bandwidth=10|25");
  EXPECT_EQ(links.varies, "bandwidth");
  EXPECT_EQ(links.each[1].what_if.bandwidth, 25);
  EXPECT_EQ(links.each[1].what_if.nodes, 4U);
  EXPECT_EQ(parse_what_ifs("").each.size(), 1U);
  for (const char* text :
       {"nodes=1..4,bandwidth=1|2", "nodes=4..1", "bandwidth=1..4", "nodes=0..4", "nodes=1..2.5",
        "nodes=1..", "nodes=2|2", "nodes=1|2,nodes=4|8", "nodes=2,2", "nodes=1..1e9"}) {
    EXPECT_THROW(parse_what_ifs(text), Error) << text;
  }
}

TEST(WhatIf, SaysWhatToDo) {
  const auto expect = [](const std::string& text, const std::string& part) {
    try {
      parse_what_ifs(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect("nodes=2.9",
         "nodes='2.9', a whole number from 1 to 131072 expected. For example: nodes=16");
  expect("nodes=4..1", "Swap its ends: nodes=1..4");
  expect("nodes=2|2", "nodes='2|2' has 2 twice. Keep one.");
  expect("nodes=2,nodes=4", "nodes stands twice. Keep one, or give it several values");
  expect("nodes=2,,", "'', one of nodes, bandwidth, latency, device, batch as key=value expected");
  expect("nodes=2,2", "Several values of one: nodes=2|4");
  expect("node=2", "Nearest: 'nodes'.");
  expect("bandwidth=1..4", "Give a list: bandwidth=10|25|100");
}

TEST(WhatIf, RefusesWhatMakesNoSense) {
  for (const char* text :
       {"node=3", "nodes=0", "nodes=x", "nodes=2.9", "batch=1.5", "nodes=1,nodes=2", "bandwidth=-1",
        "bandwidth", "batch=0", "device=A1000000", "latency=nan"}) {
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
    EXPECT_EQ(row.pcie > 0, row.computes_on == cluster::DeviceKind::kGpu) << row.kind;
    EXPECT_FALSE(row.source.empty()) << row.kind;
    EXPECT_EQ(&find_device(row.kind, "test"), &row);
  }
  EXPECT_EQ(find_device("titanx", "test").kind, "TITAN X");
}

TEST(Devices, AreKnownByWhatTheirDriverSays) {
  const std::pair<const char*, const char*> all[] = {{"Tesla V100-SXM2-16GB", "V100"},
                                                     {"Tesla V100-SXM2-32GB", "V100 32GB"},
                                                     {"Tesla V100-PCIE-32GB", "V100 32GB"},
                                                     {"NVIDIA A100-SXM4-40GB", "A100"},
                                                     {"NVIDIA A100-PCIE-40GB", "A100"},
                                                     {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
                                                     {"NVIDIA A100 80GB PCIe", "A100 80GB"},
                                                     {"NVIDIA H100 80GB HBM3", "H100"},
                                                     {"NVIDIA H100 PCIe", "H100 PCIe"},
                                                     {"NVIDIA H200", "H200"},
                                                     {"Tesla T4", "T4"},
                                                     {"NVIDIA GeForce RTX 3090", "RTX 3090"},
                                                     {"NVIDIA A10", "A10"},
                                                     {"NVIDIA TITAN X (Pascal)", "TITAN X Pascal"}};
  for (const auto& [said, kind] : all) EXPECT_EQ(find_device(said, "test").kind, kind) << said;
  EXPECT_EQ(known_device("NVIDIA Something 9000"), nullptr);
  EXPECT_EQ(known_device(""), nullptr);
}

TEST(Devices, AGpuOfNoKindCountsAsAnA100) {
  cluster::Device gpu;
  gpu.kind = cluster::DeviceKind::kGpu;
  EXPECT_TRUE(is_assumed(gpu));
  const DeviceRow& a100 = find_device("A100", "test");
  EXPECT_EQ(figures_of(gpu, "test").tflops, a100.tflops);
  EXPECT_EQ(figures_of(gpu, "test").memory, Bytes(std::int64_t{40} << 30));
  gpu.figures.memory = Bytes(1000);  // what the cluster says stands
  EXPECT_EQ(figures_of(gpu, "test").memory, Bytes(1000));
  gpu.figures.tflops = 1;
  gpu.figures.memory_bandwidth_bytes_per_s = 1e9;
  EXPECT_FALSE(is_assumed(gpu)) << "it has rates of its own";
  EXPECT_EQ(figures_of(gpu, "test"), gpu.figures);
  const cluster::Device cpu;
  EXPECT_FALSE(is_assumed(cpu));
  EXPECT_FALSE(has_rates(figures_of(cpu, "test"))) << "it is as it was measured";
}

TEST(Devices, CopyToTheirHostsAsTheirPcieCarriesOrTheClusterSays) {
  const auto rate_of = [](const std::string& kind, double stated) {
    cluster::DeviceFigures figures;
    figures.kind = kind;
    figures.pcie_bytes_per_s = stated;
    return pcie_bytes_per_s(figures);
  };
  EXPECT_EQ(rate_of("V100", 0), 12e9);
  EXPECT_EQ(rate_of("A100", 0), 24e9);
  EXPECT_EQ(rate_of("NVIDIA H100 80GB HBM3", 0), 50e9);
  EXPECT_EQ(rate_of("B9000", 0), 12e9) << "of no known kind";
  EXPECT_EQ(rate_of("A100", 6e9), 6e9);
}

TEST(Devices, AnUnknownKindNeedsRatesAndIsToldHow) {
  cluster::Device gpu;
  gpu.kind = cluster::DeviceKind::kGpu;
  gpu.figures.kind = "A1000";
  gpu.figures.tflops = 3;
  try {
    figures_of(gpu, "device of a:GPU:0");
    FAIL() << "one of two rates";
  } catch (const Error& error) {
    const std::string what = error.what();
    for (const char* part : {"device of a:GPU:0: unknown device kind 'A1000'", "M60, TITAN X",
                             "'A100'", "devices: {kind: A1000, tflops: "}) {
      EXPECT_NE(what.find(part), std::string::npos) << what;
    }
    EXPECT_EQ(what.find('\n'), std::string::npos);
  }
  gpu.figures.memory_bandwidth_bytes_per_s = 1e9;
  EXPECT_EQ(figures_of(gpu, "test"), gpu.figures);
}

// The makers' figures are cores, clocks and operations per cycle; memory of CPUs channels by rate.
TEST(DeviceTable, IsWhatTheSourcesWorkOutTo) {
  struct Parts {
    const char* kind;
    double cores;
    double ghz;
    double per_cycle;
    double channels;  // 0: of a GPU, given by its maker as it is
    double megatransfers;
  };
  const Parts all[] = {{"M60", 2048, 1.178, 2, 0, 0},
                       {"TITAN X", 3072, 1.075, 2, 0, 0},
                       {"TITAN X Pascal", 3584, 1.531, 2, 0, 0},
                       {"P4000", 1792, 1.48, 2, 0, 0},
                       {"P100", 3584, 1.48, 2, 0, 0},
                       {"T4", 2560, 1.59, 2, 0, 0},
                       {"V100", 5120, 1.53, 2, 0, 0},
                       {"V100 32GB", 5120, 1.53, 2, 0, 0},
                       {"A100", 6912, 1.41, 2, 0, 0},
                       {"A100 80GB", 6912, 1.41, 2, 0, 0},
                       {"H100", 16896, 1.98, 2, 0, 0},
                       {"H100 PCIe", 14592, 1.755, 2, 0, 0},
                       {"H200", 16896, 1.98, 2, 0, 0},
                       {"A10", 9216, 1.695, 2, 0, 0},
                       {"L4", 7424, 2.04, 2, 0, 0},
                       {"L40S", 18176, 2.52, 2, 0, 0},
                       {"RTX A6000", 10752, 1.8, 2, 0, 0},
                       {"GTX 1080 Ti", 3584, 1.582, 2, 0, 0},
                       {"RTX 2080 Ti", 4352, 1.545, 2, 0, 0},
                       {"RTX 3090", 10496, 1.695, 2, 0, 0},
                       {"RTX 4090", 16384, 2.52, 2, 0, 0},
                       {"Xeon E5-2690 v4", 14, 2.6, 32, 4, 2400},
                       {"Xeon Gold 6148", 20, 2.4, 64, 6, 2666},
                       {"Xeon Platinum 8259CL", 24, 2.5, 64, 6, 2933},
                       {"EPYC 7742", 64, 2.25, 32, 8, 3200},
                       {"EPYC 9654", 96, 2.4, 32, 12, 4800}};
  EXPECT_EQ(std::size(all), device_table().size()) << "a row without its parts";
  for (const Parts& parts : all) {
    const DeviceRow& row = find_device(parts.kind, "test");
    EXPECT_NEAR(row.tflops / (parts.cores * parts.ghz * parts.per_cycle / 1000), 1, 0.01)
        << parts.kind;
    if (parts.channels == 0) continue;
    EXPECT_NEAR(row.memory_gb_per_s / (parts.channels * parts.megatransfers * 8 / 1000), 1, 0.01)
        << parts.kind;
  }
}

}  // namespace
}  // namespace autodist::sim
