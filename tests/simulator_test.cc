// The simulator against what can be worked out by hand, and laws over random jobs.

#include "autodist/sim/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "autodist/search/builders/builders.h"
#include "tests/simulated_jobs.h"

namespace autodist {
namespace {

constexpr int kRounds = 150;

sim::SimulationOptions plainly() {
  sim::SimulationOptions options;
  options.symmetry = false;
  return options;
}

Bytes trained_bytes(const program::Program& program) {
  Bytes sum;
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    if (program.graph->variables[i].gradient) sum += bytes_of(*program.graph, ir::VariableId(i));
  }
  return sum;
}

// Machine i, which owns o_i of M bytes, sends (M - o_i) + (N-1) o_i, and as much comes in.
TEST(Bytes, EveryMachineSendsExactlyTheBytesOfItsOwnersFormula) {
  const auto graph = stack(5, 37, 1e-3);
  for (const char* builder : {"PS", "PSLoadBalancing", "PartitionedPS", "P3:slice_parameters=100",
                              "AllReduce:algorithm=direct", "BytePS:partition_bytes=500"}) {
    for (const int nodes : {2, 3, 4, 7}) {
      const SimulatedJob job = job_of(graph, builder, nodes);
      const sim::Simulation simulation = job.simulate();
      const Bytes all = trained_bytes(job.program);
      std::vector<Bytes> owned(static_cast<std::size_t>(nodes));
      for (const program::Slice& slice : job.program.slices)
        owned[slice.owner.value] += bytes_of(slice);
      Bytes total;
      for (std::size_t i = 0; i < owned.size(); ++i) {
        const Bytes expected = all - owned[i] + owned[i] * (nodes - 1);
        EXPECT_EQ(simulation.nodes[i].sent.value, expected.value) << builder << " node " << i;
        EXPECT_EQ(simulation.nodes[i].received.value, expected.value) << builder << " node " << i;
        total += simulation.nodes[i].sent;
      }
      EXPECT_EQ(total.value, (all * 2 * (nodes - 1)).value) << builder;
    }
  }
}

// A ring: 2M less the two parts that a machine does not pass on; 2M (N-1) in all.
TEST(Bytes, ARingSendsExactlyTheBytesOfItsFormula) {
  const auto graph = stack(3, 37, 1e-3);
  for (const int nodes : {2, 3, 5}) {
    const SimulatedJob job = job_of(graph, "AllReduce:algorithm=library", nodes);
    const sim::Simulation simulation = job.simulate();
    const std::int64_t all = trained_bytes(job.program).value;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < simulation.nodes.size(); ++i) {
      const auto part = [&](std::size_t p) {
        const auto k = static_cast<std::int64_t>(p % static_cast<std::size_t>(nodes));
        return all * (k + 1) / nodes - all * k / nodes;
      };
      EXPECT_EQ(simulation.nodes[i].sent.value, 2 * all - part(i + 1) - part(i + 2));
      total += simulation.nodes[i].sent.value;
    }
    EXPECT_EQ(total, 2 * all * (nodes - 1));
  }
}

// Beside slices the ring goes message by message through the same cards, with the same bytes.
TEST(Bytes, ARingSendsAsManyBytesBesideSlicesAsAlone) {
  const auto graph = stack(4, 36, 1e-3);
  const cluster::Cluster cluster = machines(3);
  SimulatedJob job = job_on(graph, "AllReduce:algorithm=library,chunk_size=2", cluster);
  const std::int64_t ring_alone = job.simulate().nodes[1].sent.value;
  job = job_on(graph, "AllReduce:algorithm=library,chunk_size=1", cluster);
  EXPECT_EQ(job.simulate().nodes[1].sent.value, ring_alone);
}

// A library takes its cores where it begins, so its messages take none.
TEST(Cores, ARingBesideSlicesTakesItsCoresOnce) {
  const auto graph = stack(4, 100, 1e-3);
  const cluster::Cluster cluster = machines(3);
  strategy::Strategy mixed =
      search::build_strategy("AllReduce:algorithm=library,chunk_size=1", *graph, cluster);
  mixed.nodes.front() = search::build_strategy("PS", *graph, cluster).nodes.front();
  strategy::fix_priorities(mixed, *graph);
  SimulatedJob job = job_of(graph, "PS", 3);
  job.program = passes::rewrite(graph, mixed, cluster, {}, "mixed");
  only_the_wire(job.costs);
  const double per_byte = job.costs.engine.send_cpu_s_per_byte = 1e-6;
  const sim::Simulation simulation = job.simulate();
  std::int64_t sent = 0;
  double stolen = 0;
  for (const sim::NodeUse& node : simulation.nodes) {
    sent += node.sent.value;
    stolen += node.stolen.value;
  }
  const double slices = 2 * 2 * 4e4;  // two others push, and get it back
  EXPECT_GT(static_cast<double>(sent), 3 * slices) << "the ring is among it";
  EXPECT_GT(stolen, 0);
  EXPECT_LE(stolen, slices * per_byte * 1.01);
}

// One layer, two machines, one owner: the step is forward, backward, and what the parameters need
// to come back to the machine that does not own them.
TEST(Closed, AStepOfOneVariableOnTwoMachinesTakesTheFormulasTime) {
  const std::int64_t width = 500;  // 1 MB in one slice
  const auto graph = stack(1, width, 10e-3);
  passes::Options options;
  options.slice_bytes = Bytes(10'000'000);
  SimulatedJob job = job_on(graph, "PS", machines(2), options);
  only_the_wire(job.costs);
  const double bytes = 4.0 * width * width;
  const double latency = 50e-6;
  const double wire = bytes / 125e6 + latency;
  // Forward and the weight's gradient, then there and back again; the last op of the backward pass
  // runs meanwhile.
  const double round = 2 * 10e-3 + 2 * wire;
  const sim::Simulation simulation = job.simulate();
  EXPECT_NEAR(simulation.step.value, round, 1e-9);
  EXPECT_NEAR(simulation.first_step.value, 3 * 10e-3, 1e-9);
  EXPECT_NEAR(simulation.bounds.chain.value, round, 1e-9);
}

// The way round a variable begins with the op times of the machine that it leads to: here the owner
// computes three times as long, and has no way.
TEST(Closed, ASlowOwnerDoesNotAddToTheWayOfAFasterMember) {
  const std::int64_t width = 2000;
  passes::Options options;
  options.slice_bytes = Bytes(100'000'000);
  SimulatedJob job = job_on(stack(1, width, 10e-3), "PS", machines(2), options);
  only_the_wire(job.costs);
  const std::uint32_t owner = job.program.slices.front().owner.value;
  sim::DeviceCost slow = job.costs.devices.front();
  for (Seconds& op : slow.ops) op = op * 3.0;
  job.costs.devices.push_back(slow);
  job.costs.device_of_rank[owner] = 1;
  const double wire = 4.0 * width * width / 125e6 + 50e-6;
  const sim::Simulation simulation = job.simulate();
  EXPECT_NEAR(simulation.step.value, 2 * 10e-3 + 2 * wire, 1e-9);
  EXPECT_NEAR(simulation.bounds.plan.value, 2 * 10e-3 + 2 * wire, 1e-9);
}

// Slow links: the card is busy all the time, and the step is its bytes.
TEST(Closed, OnSlowLinksAStepTakesAsLongAsItsBytes) {
  SimulatedJob job = job_of(stack(20, 200, 1e-6), "AllReduce:algorithm=direct", 4);
  only_the_wire(job.costs);
  const double bytes = static_cast<double>(trained_bytes(job.program).value) * 2 * 3 / 4;
  const sim::Simulation simulation = job.simulate();
  EXPECT_GE(simulation.step.value, bytes / 125e6 * (1 - 1e-9));
  EXPECT_LE(simulation.step.value, bytes / 125e6 * 1.2);
  EXPECT_NEAR(simulation.bounds.traffic.value, bytes / 125e6, 1e-9);
}

// Where bytes cost next to nothing, ranks of one node are as ranks of nodes of their own.
TEST(Messages, OfRanksOfOneNodeAreHandledBesideEachOther) {
  const auto step = [](const char* builder, int nodes, int ranks_per_node) {
    SimulatedJob job = job_of(stack(24, 8, 1e-9), builder, nodes, ranks_per_node);
    only_the_wire(job.costs);
    job.costs.cores = 64;
    job.costs.engine.message = Seconds(1e-3);
    return job.simulate().step.value;
  };
  for (const char* builder : {"AllReduce:algorithm=direct,chunk_size=1", "PSLoadBalancing",
                              "AllReduce:algorithm=ring,chunk_size=1"}) {
    const double apart = step(builder, 8, 1);
    EXPECT_NEAR(step(builder, 1, 8), apart, 0.1 * apart) << builder;
    // A rank's messages inside of its node pass beside those over the card.
    EXPECT_NEAR(step(builder, 4, 2), apart, 0.2 * apart) << builder;
  }
}

TEST(Closed, AStepWithALibraryAllReduceTakesTheFormulasTime) {
  SimulatedJob job = job_of(stack(1, 300, 10e-3), "AllReduce:algorithm=library", 4);
  only_the_wire(job.costs);
  const double ring = 2 * 3 * (50e-6 + 4.0 * 300 * 300 / 4 / 125e6);
  EXPECT_NEAR(job.simulate().step.value, std::max(20e-3 + ring, 30e-3), 1e-9);
}

// A ring takes as long as the narrowest link that it passes needs for each round.
TEST(Closed, ALibraryAllReduceTakesAsLongAsItsNarrowestLink) {
  const auto graph = stack(1, 300, 1e-9);
  const auto step = [&](const cluster::Cluster& cluster) {
    SimulatedJob job = job_on(graph, "AllReduce:algorithm=library", cluster);
    only_the_wire(job.costs);
    return job.simulate().step.value;
  };
  const auto ring = [](int ranks, double rate) {
    return 2 * (ranks - 1) * (50e-6 + 4.0 * 300 * 300 / ranks / rate);
  };
  cluster::Cluster racks = machines(4);
  const auto address = [&](std::size_t node) { return racks.nodes[node].address; };
  for (const double o : {1.0, 2.0, 4.0, 16.0}) {
    racks.switches = {{"r", {address(0), address(1)}, o}, {"s", {address(2), address(3)}, o}};
    EXPECT_NEAR(step(racks), ring(4, std::min(125e6, 250e6 / o)), 1e-6) << o;
  }
  cluster::Cluster pairs = machines(2, 2);
  for (const double inside : {1e9, 125e6, 5e6}) {
    for (cluster::Node& node : pairs.nodes) node.intra_node_bytes_per_s = inside;
    EXPECT_NEAR(step(pairs), ring(4, std::min(125e6, inside)), 1e-6) << inside;
  }
  cluster::Cluster single = machines(4);  // nothing is inside a node
  for (cluster::Node& node : single.nodes) node.intra_node_bytes_per_s = 5e6;
  EXPECT_NEAR(step(single), ring(4, 125e6), 1e-6);
}

// Jiang et al., OSDI 2020: t = 2n(n-1)M / ((n^2 + kn - 2k) B).
TEST(Bounds, TheTrafficBoundIsBytePSsFormula) {
  const double bytes = 1e9;
  const double rate = 1e9;
  for (int n = 2; n <= 9; ++n) {
    for (int k = 0; k <= n; ++k) {
      const double expected = 2.0 * n * (n - 1) * bytes / ((n * n + k * n - 2.0 * k) * rate);
      const std::vector<double> workers(static_cast<std::size_t>(n), rate);
      const std::vector<double> servers(static_cast<std::size_t>(k), rate);
      EXPECT_NEAR(sim::least_traffic(bytes, workers, servers).value, expected, 1e-9)
          << n << " workers, " << k << " servers";
    }
  }
}

TEST(Laws, NoStepBeatsItsBoundsAndNobodyWaitsForEver) {
  std::mt19937 random(11);
  for (int round = 0; round < kRounds; ++round) {
    const SimulatedJob job = random_job(random);
    const sim::Simulation simulation = job.simulate();
    EXPECT_GT(simulation.step.value, 0) << round;
    EXPECT_GE(simulation.step.value, simulation.bounds.plan.value * (1 - 1e-9)) << round;
  }
}

TEST(Laws, WhatIsSentIsReceived) {
  std::mt19937 random(12);
  for (int round = 0; round < kRounds; ++round) {
    const sim::Simulation simulation = random_job(random).simulate();
    Bytes sent;
    Bytes received;
    for (const sim::NodeUse& use : simulation.nodes) {
      sent += use.sent;
      received += use.received;
    }
    // Per step and node, rounded down.
    EXPECT_NEAR(static_cast<double>(sent.value), static_cast<double>(received.value),
                static_cast<double>(simulation.nodes.size()))
        << round;
  }
}

TEST(Laws, TheSameArgumentsGiveTheSameBits) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    std::mt19937 first(seed);
    std::mt19937 second(seed);
    const sim::Simulation a = random_job(first).simulate();
    sim::SimulationOptions traced;
    traced.trace = true;
    const sim::Simulation b = random_job(second).simulate(traced);
    EXPECT_EQ(a.step.value, b.step.value) << "a trace changes nothing";
    EXPECT_EQ(a.events, b.events);
    EXPECT_FALSE(b.trace.rows.empty());
  }
}

TEST(Laws, AHopelessJobIsLeft) {
  std::mt19937 random(17);
  int left = 0;
  int wrongly = 0;
  for (int round = 0; round < kRounds; ++round) {
    const SimulatedJob job = random_job(random);
    const sim::Simulation whole = job.simulate();
    sim::SimulationOptions hurried;
    hurried.hopeless = whole.step * 1.02;  // as a search does with its best
    if (job.simulate(hurried).abandoned) ++wrongly;
    hurried.hopeless = whole.step * 1.5;
    const sim::Simulation same = job.simulate(hurried);
    if (!same.abandoned) {
      EXPECT_EQ(same.step.value, whole.step.value) << round;
      EXPECT_EQ(same.events, whole.events) << round;
    }
    hurried.hopeless = whole.step * 0.5;
    const sim::Simulation hopeless = job.simulate(hurried);
    if (!hopeless.abandoned) continue;
    ++left;
    EXPECT_LT(hopeless.events, whole.events) << round;
    EXPECT_GE(hopeless.step, whole.step * 0.5) << round;
  }
  EXPECT_LE(wrongly, kRounds / 20) << "first steps seldom mislead";
  EXPECT_GT(left, 10) << "most settle in as few steps";
}

void expect_same(const sim::Simulation& a, const sim::Simulation& b, const std::string& what) {
  EXPECT_EQ(a.step.value, b.step.value) << what;
  EXPECT_EQ(a.first_step.value, b.first_step.value) << what;
  ASSERT_EQ(a.ranks.size(), b.ranks.size()) << what;
  for (std::size_t i = 0; i < a.ranks.size(); ++i) {
    EXPECT_EQ(a.ranks[i].computing.value, b.ranks[i].computing.value) << what << " rank " << i;
    EXPECT_EQ(a.ranks[i].waiting.value, b.ranks[i].waiting.value) << what << " rank " << i;
    EXPECT_EQ(a.ranks[i].owning.value, b.ranks[i].owning.value) << what << " rank " << i;
  }
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].sent.value, b.nodes[i].sent.value) << what << " node " << i;
    // Slices that are equally urgent leave in the order of their numbers, which are not turned: the
    // same seconds are added up in another order.
    EXPECT_DOUBLE_EQ(a.nodes[i].sending, b.nodes[i].sending) << what << " node " << i;
    EXPECT_DOUBLE_EQ(a.nodes[i].stolen.value, b.nodes[i].stolen.value) << what << " node " << i;
  }
}

TEST(Symmetry, OneRankStandsForAllBitForBit) {
  const auto graph = stack(6, 24, 2e-3);
  for (const char* builder :
       {"AllReduce:algorithm=direct,chunk_size=1", "AllReduce:algorithm=library,chunk_size=2",
        "AllReduce:algorithm=direct,update_at=owner,chunk_size=1",
        "AllReduce:algorithm=ring,chunk_size=1", "AllReduce:algorithm=tree,chunk_size=1",
        "AllReduce:algorithm=hierarchical,update_at=owner,chunk_size=1",
        "AllReduce:algorithm=library,compressor=PowerSGDCompressor,chunk_size=3"}) {
    for (const int nodes : {2, 3, 4, 6, 8}) {
      for (const int per_node : {1, 2}) {
        if (24 * 24 % (nodes * per_node) != 0) continue;
        const SimulatedJob job = job_of(graph, builder, nodes, per_node);
        const sim::Simulation reduced = job.simulate();
        EXPECT_EQ(reduced.simulated_ranks, static_cast<unsigned>(per_node)) << builder << nodes;
        const sim::Simulation plain = job.simulate(plainly());
        EXPECT_EQ(plain.simulated_ranks, static_cast<unsigned>(nodes * per_node));
        EXPECT_GT(plain.events, reduced.events);
        expect_same(reduced, plain, builder + std::to_string(nodes));
      }
    }
  }
}

// Servers take turns, so a group of ranks repeats though no single one does.
TEST(Symmetry, OfGroupsOfRanks) {
  const auto graph = stack(8, 24, 2e-3);
  cluster::Cluster cluster = machines(8);
  SimulatedJob job = job_on(graph, "P3:slice_parameters=72", cluster);
  const sim::Simulation reduced = job.simulate();
  EXPECT_LT(reduced.simulated_ranks, 8U);
  expect_same(reduced, job.simulate(plainly()), "P3");
}

TEST(Symmetry, OverRandomJobs) {
  std::mt19937 random(13);
  int reduced = 0;
  for (int round = 0; round < kRounds; ++round) {
    SimulatedJob job = random_job(random);
    const sim::Simulation with = job.simulate();
    if (with.simulated_ranks < job.program.ranks.size()) ++reduced;
    expect_same(with, job.simulate(plainly()), std::to_string(round));
  }
  EXPECT_GT(reduced, 0);
}

TEST(Symmetry, AsymmetricJobsAreLeftAlone) {
  const auto graph = stack(3, 24, 2e-3);
  EXPECT_EQ(job_of(graph, "PS", 4).simulate().simulated_ranks, 4U);
  cluster::Cluster cluster = machines(4);
  cluster.nodes[2].bandwidth_bytes_per_s /= 2;
  EXPECT_EQ(job_on(graph, "AllReduce:algorithm=direct", cluster).simulate().simulated_ranks, 4U);
}

// Two ranks, each of whose every fourth step takes five times as long, two steps out of phase.
double slow_in_turn(const std::string& builder) {
  SimulatedJob job = job_of(stack(4, 8, 1e-3), builder, 2);
  only_the_wire(job.costs);
  job.costs.slowness = [](program::Rank rank, std::uint64_t step) {
    return step % 4 == 2 * rank.value ? 5.0 : 1.0;
  };
  sim::SimulationOptions options;
  options.most_steps = 81;
  options.least_steps = 81;
  return job.simulate(options).step.value;
}

TEST(Staleness, HelpsWhereSlownessMovesBetweenRanks) {
  const double synchronous = slow_in_turn("PSLoadBalancing");
  EXPECT_NEAR(synchronous / slow_in_turn("PSLoadBalancing:staleness=2"), 1.5, 0.05);
}

TEST(Staleness, HelpsNobodyWhereOneRankIsAlwaysSlow) {
  const auto one_slow = [](const std::string& builder) {
    SimulatedJob job = job_of(stack(4, 8, 1e-3), builder, 2);
    only_the_wire(job.costs);
    job.costs.slowness = [](program::Rank rank, std::uint64_t) {
      return rank.value == 1 ? 2.0 : 1.0;
    };
    sim::SimulationOptions options;
    options.least_steps = 60;
    options.most_steps = 60;
    return job.simulate(options).step.value;
  };
  const double synchronous = one_slow("PSLoadBalancing");
  EXPECT_NEAR(one_slow("PSLoadBalancing:staleness=2") / synchronous, 1, 0.05);
  // Asynchronous: the fast one goes at its own pace, 12 ms, the slow one at 24.
  EXPECT_NEAR(one_slow("PSLoadBalancing:sync=false") / synchronous, 2.0 / 3, 0.05);
}

// The owner of the large variables is behind, and ranks are not served alike.
TEST(Asynchronous, NoStepBeatsItsBoundAndAFasterLinkMakesNoneSlower) {
  double before = std::numeric_limits<double>::infinity();
  for (const double gigabits : {0.5, 1.0, 2.0, 4.0, 10.0}) {
    cluster::Cluster cluster = machines(4, 2);
    for (cluster::Node& node : cluster.nodes) node.bandwidth_bytes_per_s = gigabits * 125e6;
    const SimulatedJob job = job_on(stack(3, 1000, 1e-4), "PSLoadBalancing:sync=false", cluster);
    const sim::Simulation simulation = job.simulate();
    EXPECT_GE(simulation.step, simulation.bounds.plan) << gigabits;
    EXPECT_LE(simulation.step.value, before * 1.01) << gigabits;
    before = simulation.step.value;
  }
}

TEST(Barrier, MakesPrioritiesUseless) {
  const auto graph = stack(12, 250, 1e-3);
  SimulatedJob job = job_of(graph, "P3:slice_parameters=5000", 4);
  only_the_wire(job.costs);
  job.costs.engine.window = Bytes(64 << 10);  // what is on its way cannot be overtaken
  job.costs.engine.nic_budget = Bytes(256 << 10);
  SimulatedJob in_order = job;
  for (program::Slice& slice : in_order.program.slices)
    slice.needed = Seconds(100 - slice.needed.value);
  const double priority = job.simulate().step.value;
  const double first_in_first_out = in_order.simulate().step.value;
  EXPECT_GT(first_in_first_out / priority, 1.1);
  job.program = sim::with_barrier(job.program);
  in_order.program = sim::with_barrier(in_order.program);
  EXPECT_NEAR(in_order.simulate().step / job.simulate().step, 1, 0.02);
}

TEST(Window, TheProgramsWindowReplacesTheCostModels) {
  SimulatedJob job = job_of(stack(12, 250, 1e-3), "P3:slice_parameters=5000", 4);
  only_the_wire(job.costs);
  job.costs.engine.window = Bytes(64 << 10);
  job.costs.engine.nic_budget = Bytes(256 << 10);
  const double small = job.simulate().step.value;
  job.costs.engine.window = Bytes(16 << 20);
  job.costs.engine.nic_budget = Bytes(64 << 20);
  const double large = job.simulate().step.value;
  EXPECT_GT(large, 1.02 * small) << "what is on its way cannot be overtaken";
  job.program.window = Bytes(64 << 10);
  EXPECT_EQ(job.simulate().step.value, small);
}

// Two machines, one variable at one of them: the gradient goes there and the parameters come back,
// each at the stream's rate; many slices beside each other fill the card all the same.
TEST(Stream, AStreamsRateLimitsOneSliceAndNotTheCard) {
  SimulatedJob one = job_of(stack(1, 100, 1e-3), "PS", 2);
  only_the_wire(one.costs);
  const double free = one.simulate().step.value;
  one.costs.engine.stream_bytes_per_s = 1e6;
  EXPECT_NEAR(one.simulate().step.value - free, 2 * 4e4 / 1e6, 1e-3) << "but for the card's time";

  SimulatedJob many = job_of(stack(12, 250, 1e-4), "P3:slice_parameters=1000", 2);
  only_the_wire(many.costs);
  const double full = many.simulate().step.value;
  many.costs.engine.stream_bytes_per_s = many.cluster.nodes.front().bandwidth_bytes_per_s / 8;
  EXPECT_NEAR(many.simulate().step.value / full, 1, 0.1);
}

TEST(Bounds, ABoundNamesComputingWhereComputingSetsIt) {
  SimulatedJob computes = job_of(stack(4, 64, 1), "PS", 2);
  const std::string name = sim::bound_name(computes.simulate().bounds);
  EXPECT_EQ(name.rfind("compute", 0), 0U) << name;
  SimulatedJob sends = job_of(stack(4, 1000, 1e-6), "PS", 2);
  const std::string other = sim::bound_name(sends.simulate().bounds);
  EXPECT_EQ(other.find("compute"), std::string::npos) << other;
}

TEST(Cores, TheEngineTakesTimeFromRanksThatComputeOnThem) {
  SimulatedJob job = job_of(stack(4, 300, 5e-3), "AllReduce:algorithm=direct", 2);
  const sim::Simulation shared = job.simulate();
  job.costs.cores = 4;
  const sim::Simulation free = job.simulate();
  EXPECT_GT(shared.ranks[0].computing.value, free.ranks[0].computing.value * 1.01);
  EXPECT_GT(shared.nodes[0].stolen.value, 0);
  EXPECT_EQ(free.nodes[0].stolen.value, 0);
}

// Four ranks on two cores take twice as long as on four.
TEST(Cores, AreSharedByRanksThatCompute) {
  SimulatedJob job = job_of(stack(4, 8, 5e-3), "AllReduce:algorithm=direct", 1, 4);
  only_the_wire(job.costs);
  job.costs.cores = 4;
  EXPECT_NEAR(job.simulate().first_step.value, 12 * 5e-3, 1e-9);
  job.costs.cores = 2;
  EXPECT_NEAR(job.simulate().first_step.value, 2 * 12 * 5e-3, 12 * 5e-3 * 0.2);
}

TEST(Accumulation, ContributesOncePerStep) {
  const auto graph = stack(4, 50, 1e-3);
  passes::Options options;
  options.micro_batches = 3;
  SimulatedJob job = job_on(graph, "PSLoadBalancing", machines(2), options);
  const SimulatedJob once = job_on(graph, "PSLoadBalancing", machines(2));
  only_the_wire(job.costs);
  EXPECT_EQ(job.simulate().nodes[0].sent.value, once.simulate().nodes[0].sent.value);
  EXPECT_NEAR(job.simulate().first_step.value, 3 * 12e-3, 1e-9);
}

TEST(Compression, HalvesWhatLeaves) {
  const auto graph = stack(4, 64, 1e-3);
  const auto sent = [&](const std::string& builder) {
    return job_of(graph, builder, 2).simulate().nodes[1].sent.value;
  };
  EXPECT_EQ(2 * sent("PS:compressor=HorovodCompressor"), sent("PS"));
}

}  // namespace
}  // namespace autodist
