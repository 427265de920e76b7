// What the simulator takes devices and links for, and what it says that they hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "autodist/base/error.h"
#include "autodist/ir/liveness.h"
#include "tests/simulated_jobs.h"

namespace autodist {
namespace {

// Two machines with one GPU each.
cluster::Cluster gpus(const std::string& kind) {
  cluster::Cluster cluster = machines(2);
  for (cluster::Node& node : cluster.nodes) {
    node.slots = 0;
    node.gpus.emplace_back();
    node.gpus.front().kind = cluster::DeviceKind::kGpu;
    node.gpus.front().figures.kind = kind;
  }
  return cluster;
}

TEST(Devices, ANetworkWhoseRateNobodyStatedIsSaidToBeTheDefault) {
  const auto graph = stack(2, 500, 10);
  const auto lines = [&](const cluster::Cluster& cluster) {
    const std::vector<std::string> all = job_on(graph, "PS", cluster).costs.uncalibrated;
    return std::count_if(all.begin(), all.end(), [](const std::string& line) {
      return line.find("machines linked at 1 Gbit/s, the default") != std::string::npos;
    });
  };
  cluster::Cluster cluster = machines(2);
  EXPECT_EQ(lines(cluster), 1);
  cluster.nodes[0].bandwidth_is_stated = true;
  EXPECT_EQ(lines(cluster), 1) << "the other one's";
  cluster.nodes[1].bandwidth_is_stated = true;
  EXPECT_EQ(lines(cluster), 0);
  EXPECT_EQ(lines(machines(1, 2)), 0) << "one machine";
}

TEST(Devices, RanksWhoseCoresNobodyCountedAreSaidToHaveOneEach) {
  const auto graph = stack(2, 500, 10);
  const auto says = [&](const cluster::Cluster& cluster) {
    const std::vector<std::string> all = job_on(graph, "PS", cluster).costs.uncalibrated;
    const std::string line =
        "a machine's cores: one for each of its 4 ranks (`cores` in a calibration)";
    return std::count(all.begin(), all.end(), line) == 1;
  };
  EXPECT_TRUE(says(machines(1, 4)));
  EXPECT_TRUE(says(machines(2, 4)));
  EXPECT_FALSE(says(machines(4, 1)));
  EXPECT_FALSE(says(gpus("A100")));
}

// Not as the CPU that captured the graph.
TEST(Devices, GpusOfNoKindAreNotTimedAsTheCapturingCpu) {
  cluster::Cluster cluster = machines(2);
  for (cluster::Node& node : cluster.nodes) {
    node.slots = 0;
    node.gpus.resize(2);
    for (std::uint32_t i = 0; i < 2; ++i) node.gpus[i] = {cluster::DeviceKind::kGpu, i, {}};
  }
  const auto graph = stack(2, 500, 10);
  const SimulatedJob job = job_on(graph, "PS", cluster);
  ASSERT_EQ(job.costs.devices.size(), 1U);
  EXPECT_EQ(job.costs.devices.front().kind, "A100");
  EXPECT_LT(compute_seconds(job.costs, program::Rank(0)), Seconds{1}) << "measured: more than 10 s";
  const auto says = [&](const std::string& line) {
    return line.find("count as A100") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(job.costs.uncalibrated.begin(), job.costs.uncalibrated.end(), says), 1);
  for (cluster::Node& node : cluster.nodes) {
    for (cluster::Device& gpu : node.gpus) gpu.figures.kind = "B9000";
  }
  EXPECT_THROW(sim::check_devices(job.program, cluster), Error);
  passes::Options on_cpus;
  on_cpus.cpu_only = true;
  const SimulatedJob here = job_on(graph, "PS", cluster, on_cpus);
  EXPECT_EQ(here.costs.devices.front().kind, "as measured");
}

// It computes nothing, whatever it is.
TEST(Devices, AServerOnACpuLeavesThePrecisionToTheGpus) {
  cluster::Cluster cluster = gpus("H100");
  cluster.nodes.push_back(machines(3).nodes.back());
  cluster.nodes.back().role = cluster::NodeRole::kServer;
  const SimulatedJob job = job_on(stack(2, 500, 10), "PS", cluster);
  const auto computing = [&] {
    const sim::CostModel costs =
        sim::cost_model(job.program, cluster, {0, 1, "", sim::Precision::kBf16});
    return compute_seconds(costs, program::Rank(0));
  };
  const Seconds alone = computing();
  EXPECT_LT(alone, Seconds{1}) << "measured: more than 10 s";
  cluster.nodes.back().cpus.front().figures.kind = "Xeon E5-2690 v4";
  EXPECT_EQ(computing(), alone);
  cluster.nodes.back().role = cluster::NodeRole::kWorker;
  const SimulatedJob mixed = job_on(stack(2, 500, 10), "PS", cluster);
  EXPECT_THROW(sim::cost_model(mixed.program, cluster, {0, 1, "", sim::Precision::kBf16}), Error);
}

TEST(Updates, EveryRankUpdatesOnTheDeviceThatItComputesOn) {
  cluster::Cluster cluster = gpus("A100");
  const auto graph = stack(2, 500, 1e-3);
  SimulatedJob everywhere = job_on(graph, "AllReduce:algorithm=library", cluster);
  SimulatedJob at_owner = job_on(graph, "PS", cluster);
  const double device = everywhere.costs.devices.front().update_bytes_per_s;
  EXPECT_NEAR(device, 1555e9 * 0.7 / 3, 1e9);
  EXPECT_EQ(sim::update_bytes_per_s(everywhere.costs, everywhere.program), device);
  const double before = everywhere.simulate().step.value;
  const double owners = at_owner.simulate().step.value;
  for (SimulatedJob* job : {&everywhere, &at_owner}) job->costs.engine.update_bytes_per_s = 1e6;
  EXPECT_EQ(everywhere.simulate().step.value, before) << "no host updates";
  EXPECT_GT(at_owner.simulate().step.value, owners);
  for (sim::DeviceCost& each : everywhere.costs.devices) each.update_bytes_per_s = 0;
  EXPECT_GT(everywhere.simulate().step.value, before);
}

TEST(Devices, VersionsGoToDevicesAtTheRateOfTheSlowestLink) {
  cluster::Cluster cluster = gpus("A100");
  cluster.nodes.back().gpus.front().figures.kind = "V100";
  const auto graph = stack(2, 500, 1e-3);
  const auto rate = [&] {
    const SimulatedJob job = job_on(graph, "PS", cluster);
    return sim::staging_bytes_per_s(job.costs, job.program);
  };
  EXPECT_EQ(rate(), 12e9);
  cluster.nodes.back().gpus.front().figures.pcie_bytes_per_s = 30e9;
  EXPECT_EQ(rate(), 24e9);
  cluster.nodes.front().gpus.clear();
  EXPECT_EQ(rate(), 30e9) << "the other rank computes on its host";
  cluster.nodes.back().gpus.clear();
  EXPECT_EQ(rate(), 0);
}

// 1 MB over a bus of 10 MB/s, each way.
TEST(Devices, CastGradientsBeforeTheyCrossToTheHost) {
  cluster::Cluster cluster = gpus("A100");
  for (cluster::Node& node : cluster.nodes) node.gpus.front().figures.pcie_bytes_per_s = 1e7;
  const auto graph = stack(1, 500, 1e-3);
  const auto step = [&](const char* builder, double encode_bytes_per_s = 1e12) {
    SimulatedJob job = job_on(graph, builder, cluster);
    job.costs.engine.encode_bytes_per_s = encode_bytes_per_s;
    return job.simulate().step.value;
  };
  const double cast = step("AllReduce:compressor=fp16");
  const double fed_back = step("AllReduce:compressor=fp16+ef");
  EXPECT_NEAR(fed_back - cast, 0.05, 1e-3) << "half of it";
  EXPECT_NEAR(step("AllReduce") - cast, 0.05, 0.01) << "and of what is on the wire";
  // Owners decode and encode in both; with error feedback the host encodes the gradient, too.
  const double slow = step("AllReduce:compressor=fp16", 1e8) - cast;
  EXPECT_NEAR(step("AllReduce:compressor=fp16+ef", 1e8) - fed_back, slow + 0.01, 1e-3);
}

TEST(Memory, SaysWhatDoesNotFitAndByHowMuch) {
  SimulatedJob job = job_of(stack(4, 64, 1e-3), "PS", 2);
  const Bytes needed = job.simulate().memory[0].device();
  job.costs.devices[0].memory = needed - Bytes(100);
  const sim::Simulation simulation = job.simulate();
  EXPECT_FALSE(simulation.memory[0].fits());
  EXPECT_EQ(simulation.memory[0].missing().value, 100);
  EXPECT_TRUE(simulation.memory[1].fits()) << "rank 1 owns nothing";
  EXPECT_EQ(simulation.memory[0].parameters.value, 4 * 64 * 64 * 4);
  EXPECT_EQ(simulation.memory[0].gradients.value, 4 * 64 * 64 * 4);
}

TEST(Memory, WhatKernelsAllocateCountsOnTheKindOfDeviceOfTheCapture) {
  auto graph = std::make_shared<ir::Graph>(*stack(4, 64, 1e-3));
  for (ir::Op& op : graph->ops) op.cost.scratch = {0, 1 << 20};
  const auto activations = [&](const std::string& captured_on) {
    graph->device = captured_on;
    return job_of(graph, "PS", 2).simulate().memory[0].activations.value;
  };
  const std::int64_t batch = graph->example_batch;
  EXPECT_EQ(activations("cpu"), ir::activation_bytes_as_captured(*graph, batch));
  EXPECT_EQ(activations("cuda"), ir::activation_bytes(*graph, batch));
  EXPECT_EQ(activations("cpu") - activations("cuda"), 1 << 20);
}

// By what is alive at that batch, not by a figure of the batch that was captured.
TEST(Memory, ActivationsAreThoseOfTheBatchThatIsAsked) {
  auto graph = std::make_shared<ir::Graph>(*stack(4, 64, 1e-3));
  graph->peak_bytes = {};
  SimulatedJob job = job_of(graph, "PS", 2);
  const auto activations = [&](std::int64_t batch) {
    job.costs.batch = batch;
    return job.simulate().memory[0].activations;
  };
  for (const std::int64_t batch : {1, 8, 1000}) {
    EXPECT_EQ(activations(batch).value, ir::activation_bytes(*graph, batch));
    EXPECT_GT(activations(batch), Bytes{0});
  }
  EXPECT_GT(activations(1000), activations(1) * 100);
}

// Of 4 samples x, y = x w and ones_like(y) have 4 * 400 bytes each, the sum of y 4. In 16 bits all
// but x take half, and x and w have a copy.
TEST(Memory, OfAGpuHasAContextAndWhatItsAllocatorCannotUse) {
  const auto graph = stack(1, 100, 1e-3);
  const auto use_of = [&](const char* kind, sim::Precision precision, const char* builder = "PS") {
    const SimulatedJob job = job_on(graph, builder, gpus(kind));
    sim::CostOptions options;
    options.precision = precision;
    return sim::memory_of(job.program, sim::cost_model(job.program, job.cluster, options))[0];
  };
  const sim::MemoryUse captured = use_of("A100", sim::Precision::kAsCaptured);
  EXPECT_EQ(captured.parameters.value, 40'000);
  EXPECT_EQ(captured.gradients.value, 40'000);
  EXPECT_EQ(captured.activations.value, 3 * 1600 + 4);
  EXPECT_EQ(captured.overhead.value, 500'000'000 + 84'804 / 20);
  EXPECT_EQ(captured.device().value, 84'804 + captured.overhead.value);
  const sim::MemoryUse half = use_of("V100", sim::Precision::kFp16);
  EXPECT_EQ(half.parameters.value, 40'000) << "autocast leaves it in float32";
  EXPECT_EQ(half.gradients.value, 40'000);
  EXPECT_EQ(half.activations.value, 1600 + 2 * 800 + 2 + 800 + 20'000);
  EXPECT_EQ(half.overhead.value, 300'000'000 + 104'002 / 20);
  const SimulatedJob here = job_of(graph, "PS", 2);
  EXPECT_EQ(sim::memory_of(here.program, here.costs)[0].overhead, Bytes{0});
  // A library adds up in a buffer beside the gradient, on the GPU.
  const sim::MemoryUse library =
      use_of("A100", sim::Precision::kAsCaptured, "AllReduce:algorithm=library");
  EXPECT_EQ(library.gradients.value, 2 * 40'000);
  EXPECT_LT(library.communication, captured.communication);
}

TEST(Memory, AGraphOfOneBatchSaysSo) {
  auto graph = std::make_shared<ir::Graph>(*stack(2, 8, 1e-3));
  graph->batch_fixed_reason = "aten::nonzero makes other sizes";
  const SimulatedJob job = job_of(graph, "PS", 2);
  sim::CostOptions options;
  options.batch = graph->example_batch;
  EXPECT_NO_THROW(sim::cost_model(job.program, job.cluster, options));
  options.batch = 64;
  try {
    sim::cost_model(job.program, job.cluster, options);
    FAIL() << "another batch than its own";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("can only have 4: aten::nonzero"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace autodist
