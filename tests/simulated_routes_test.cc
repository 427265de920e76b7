// Slices that do not go straight to their owner and back, gradients that travel as factors, and
// PowerSGD: the plan's bytes to the byte, and times that can be worked out by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "autodist/program/route.h"
#include "autodist/program/slice_size.h"
#include "autodist/report/plan.h"
#include "autodist/sim/factored.h"
#include "autodist/sim/simulator.h"
#include "tests/simulated_jobs.h"

namespace autodist {
namespace {

constexpr double kRate = 125e6;  // the links of machines()
constexpr double kLatency = 50e-6;

// What `plan` says that leaves each machine of one rank, and what is simulated.
void expect_planned_bytes(const SimulatedJob& job, const std::string& what) {
  const sim::Simulation simulation = job.simulate();
  const std::vector<report::RankTraffic> planned =
      report::traffic_of(job.program, job.costs.batch * job.costs.micro_batches);
  ASSERT_EQ(planned.size(), simulation.nodes.size());
  for (std::size_t i = 0; i < planned.size(); ++i) {
    EXPECT_EQ(simulation.nodes[i].sent.value, planned[i].sent.value) << what << ", rank " << i;
    EXPECT_EQ(simulation.nodes[i].received.value, planned[i].received.value) << what << ", " << i;
  }
}

TEST(SimulatedRoutesBytes, AreThePlans) {
  const auto graph = stack(5, 37, 1e-3);
  for (const char* builder :
       {"AllReduce:algorithm=ring", "AllReduce:algorithm=tree",
        "AllReduce:algorithm=ring,update_at=owner", "PartitionedAR:algorithm=ring",
        "AllReduce:algorithm=sufficient_factors", "PS:local_proxy_variable=true"}) {
    for (const int nodes : {2, 3, 4, 7}) {
      expect_planned_bytes(job_of(graph, builder, nodes), builder);
    }
  }
}

TEST(SimulatedRoutesBytes, OfResultsThatAreAskedForLeaveOncePerStepWhateverTheMicroBatches) {
  for (const std::int64_t micro_batches : {1, 3}) {
    SimulatedJob job = job_of(stack(3, 24, 1e-3), "PS:results=asked", 3);
    job.costs.micro_batches = micro_batches;
    expect_planned_bytes(job, std::to_string(micro_batches) + " micro-batches");
  }
}

// A machine sends 2M - c_a - c_b round a ring: its own part once, and that of the one behind it.
TEST(SimulatedRoutesBytes, OfARingAreTwiceTheGradientsLessTwoParts) {
  const auto graph = stack(3, 36, 1e-3);
  for (const int nodes : {3, 4, 6}) {
    const SimulatedJob job = job_of(graph, "AllReduce:algorithm=ring", nodes);
    const std::int64_t all = 3 * 36 * 36 * 4;
    for (const sim::NodeUse& use : job.simulate().nodes) {
      EXPECT_EQ(use.sent.value, 2 * all - 2 * all / nodes);
    }
  }
}

// Two ranks per node: what crosses, message by message as program::stop_of() says.
TEST(SimulatedRoutes, BytesBetweenNodesAreThoseOfTheRouteStops) {
  const auto graph = stack(4, 24, 1e-3);
  for (const char* builder :
       {"AllReduce:algorithm=hierarchical", "AllReduce:algorithm=hierarchical,update_at=owner",
        "AllReduce:algorithm=ring", "AllReduce:algorithm=tree",
        "PSLoadBalancing:local_proxy_variable=true", "PS:local_proxy_variable=true"}) {
    const SimulatedJob job = job_of(graph, builder, 3, 2);
    std::vector<Bytes> sent(3);
    const auto move = [&](program::Rank from, program::Rank to, Bytes bytes) {
      if (from.value / 2 != to.value / 2) sent[from.value / 2] += bytes;
    };
    for (const program::Slice& slice : job.program.slices) {
      const program::Loads bytes = loads_of(job.program, slice, 4);
      for (std::size_t i = 0; i < job.program.ranks.size(); ++i) {
        const program::RouteStop stop = program::stop_of(job.program, slice, program::Rank(i));
        for (const program::Rank to : stop.contributes)
          move(program::Rank(i), to, bytes.contribution);
        if (stop.onward) move(program::Rank(i), *stop.onward, bytes.contribution);
        for (const program::Rank to : stop.returns) move(program::Rank(i), to, bytes.result);
      }
    }
    const sim::Simulation simulation = job.simulate();
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(simulation.nodes[i].sent.value, sent[i].value) << builder << ", node " << i;
    }
  }
}

// One variable in one slice that rank 0 owns, by `route`.
SimulatedJob one_slice(program::Route route, int nodes, int ranks_per_node) {
  passes::Options options;
  options.slice_bytes = Bytes(10'000'000);
  SimulatedJob job = job_on(stack(1, 500, 10e-3), "PS", machines(nodes, ranks_per_node), options);
  only_the_wire(job.costs);
  EXPECT_EQ(job.program.slices.size(), 1U);
  job.program.slices.front().exchange.payload = program::Dense{route};
  return job;
}

constexpr double kBytes = 4.0 * 500 * 500;
constexpr double kHop = kBytes / kRate + kLatency;
constexpr double kForwardAndGradient = 20e-3;  // what lies between a gate and its contribution

// 1 -> 2 -> 3 -> 0 and back: six messages, one after another.
TEST(SimulatedRoutesByHand, AChain) {
  const sim::Simulation simulation = one_slice(program::Route::kRing, 4, 1).simulate();
  EXPECT_NEAR(simulation.step.value, kForwardAndGradient + 6 * kHop, 1e-9);
  EXPECT_NEAR(simulation.bounds.chain.value, kForwardAndGradient + 6 * kHop, 1e-9);
}

// 3 -> 1 -> 0 beside 2 -> 0, and back: to 1 before 2.
TEST(SimulatedRoutesByHand, ABinaryTree) {
  const sim::Simulation simulation = one_slice(program::Route::kTree, 4, 1).simulate();
  EXPECT_NEAR(simulation.step.value, kForwardAndGradient + 4 * kHop, 1e-9);
  EXPECT_NEAR(simulation.bounds.chain.value, kForwardAndGradient + 4 * kHop, 1e-9);
}

// 3 -> 2 within the second node, 2 -> 0 between the two, and back.
TEST(SimulatedRoutesByHand, ThroughOneRankPerNode) {
  SimulatedJob job = one_slice(program::Route::kNodes, 2, 2);
  const double inside = kBytes / job.cluster.nodes[0].intra_node_bytes_per_s;
  const double expected = kForwardAndGradient + 2 * (kHop + inside);
  const sim::Simulation simulation = job.simulate();
  EXPECT_NEAR(simulation.step.value, expected, 1e-9);
  EXPECT_NEAR(simulation.bounds.chain.value, expected, 1e-9);
}

// 2 and 3 share a card on their way to 0; what comes back crosses once, and is passed on while 2
// computes already.
TEST(SimulatedRoutesByHand, AProxy) {
  SimulatedJob job = one_slice(program::Route::kProxies, 2, 2);
  const double there = 2 * kBytes / kRate + kLatency;
  const sim::Simulation proxy = job.simulate();
  EXPECT_NEAR(proxy.step.value, kForwardAndGradient + there + kHop, 1e-9);
  EXPECT_EQ(proxy.nodes[0].sent.value, static_cast<std::int64_t>(kBytes));
  job.program.slices.front().exchange.payload = program::Dense{};
  EXPECT_EQ(job.simulate().nodes[0].sent.value, static_cast<std::int64_t>(2 * kBytes));
}

// Slices that go round by owner are the library's ring, without the library.
TEST(SimulatedRoutesByHand, ARingOfSlicesTakesWhatALibrarysRingDoes) {
  SimulatedJob job = job_of(stack(1, 300, 10e-3), "AllReduce:algorithm=ring", 4);
  only_the_wire(job.costs);
  const double ring = 2 * 3 * (kLatency + 4.0 * 300 * 300 / 4 / kRate);
  EXPECT_NEAR(job.simulate().step.value, std::max(20e-3 + ring, 30e-3), 1e-9);
}

// Every stop adds up what meets there; a gradient in three parts has three stops on each way.
TEST(SimulatedRoutesByHand, SumsAreMadeWhereContributionsMeet) {
  SimulatedJob job = one_slice(program::Route::kRing, 3, 1);
  job.costs.engine.sum_bytes_per_s = 1e9;
  job.costs.cores = 2;  // so that nobody who computes pays for it
  const double sum = 2 * kBytes / 1e9;
  const sim::Simulation simulation = job.simulate();
  EXPECT_NEAR(simulation.step.value, kForwardAndGradient + 4 * kHop + 2 * sum, 1e-9);
  EXPECT_NEAR(simulation.ranks[0].owning.value, sum, 1e-9);
  EXPECT_NEAR(simulation.ranks[1].owning.value, 0, 1e-9) << "the first of the chain";
  EXPECT_NEAR(simulation.ranks[2].owning.value, sum, 1e-9);
}

// Two matrices [500, 4] and [4, 500] to each other member, who multiplies both ranks' in the time
// that this product was measured to take: 10 ms each.
TEST(Factors, FactorsTravelInThePlaceOfTheGradient) {
  SimulatedJob job = job_of(stack(1, 500, 10e-3), "AllReduce:algorithm=sufficient_factors", 2);
  ASSERT_TRUE(goes_to_all(job.program.slices.front().exchange));
  only_the_wire(job.costs);
  job.costs.cores = 2;
  const double bytes = 2 * 500 * 4 * 4;
  const sim::Simulation simulation = job.simulate();
  EXPECT_EQ(simulation.nodes[0].sent.value, static_cast<std::int64_t>(bytes));
  EXPECT_NEAR(simulation.step.value, kForwardAndGradient + bytes / kRate + kLatency + 20e-3, 1e-9);
}

TEST(Factors, BoundTheProblem) {
  const auto bounds = [](const char* builder) {
    SimulatedJob job = job_of(stack(1, 1000, 10e-3), builder, 2);
    only_the_wire(job.costs);
    job.costs.cores = 2;
    return job.simulate().bounds;
  };
  const sim::Bounds whole = bounds("AllReduce");
  const sim::Bounds factors = bounds("AllReduce:algorithm=sufficient_factors");
  EXPECT_LT(whole.problem, whole.whole);
  EXPECT_EQ(whole.problem, factors.problem) << "it is the problem's, not the plan's";
  EXPECT_LE(factors.problem, factors.plan);
  // 4 MB at 125 MB/s; or 32 kB, and one product of 10 ms after it.
  EXPECT_NEAR(whole.whole.value, kForwardAndGradient + 4e6 / kRate, 1e-9);
  EXPECT_NEAR(whole.problem.value, kForwardAndGradient + 32e3 / kRate + 10e-3, 1e-9);
}

// A sample adds 2000 elements to both factors; the gradient has a million.
TEST(Factors, TravelInBatchesForWhichTheyPay) {
  const auto graph = stack(1, 1000, 10e-3);
  for (const std::int64_t batch : {0, 499, 500}) {
    passes::Options options;
    options.batch = batch;
    const SimulatedJob job =
        job_on(graph, "AllReduce:algorithm=sufficient_factors", machines(2), options);
    EXPECT_EQ(goes_to_all(job.program.slices.front().exchange), batch < 500) << batch;
    EXPECT_EQ(sim::factored_gradients(job.program, job.costs).front().saved > 0, batch < 500)
        << batch;
  }
}

TEST(PowerSgd, TwoRingsOfFactorsInTheGradientsPlace) {
  SimulatedJob job =
      job_of(stack(1, 300, 10e-3), "AllReduce:algorithm=library,compressor=PowerSGDCompressor", 4);
  only_the_wire(job.costs);
  const double factor = 4.0 * 300;
  const double rings = 2 * (2 * 3 * (kLatency + factor / 4 / kRate));
  const sim::Simulation simulation = job.simulate();
  EXPECT_NEAR(simulation.step.value, std::max(20e-3 + rings, 30e-3), 1e-9);
  EXPECT_EQ(simulation.nodes[1].sent.value, static_cast<std::int64_t>(2 * 2 * 3 * factor / 4));
  expect_planned_bytes(job, "PowerSGD");
}

// Gradients that do not pay for factors travel as they are; some variables go by slices beside
// them, so that the rings go message by message.
TEST(PowerSgd, BesideSlices) {
  const auto graph = stack(4, 36, 1e-3);
  const cluster::Cluster cluster = machines(3);
  const std::string builder =
      "AllReduce:algorithm=library,compressor=PowerSGDCompressor,chunk_size=4";
  const SimulatedJob alone = job_on(graph, builder, cluster);
  SimulatedJob mixed = alone;
  program::Slice slice;  // of nothing that the step trains, so that bytes stay what they are
  slice.pieces = {{program::ShardId(0), 0, 0}};
  slice.members = alone.program.collectives.front().members;
  mixed.program.slices.push_back(slice);
  const sim::Simulation one = alone.simulate();
  const sim::Simulation other = mixed.simulate();
  for (std::size_t i = 0; i < one.nodes.size(); ++i) {
    EXPECT_EQ(one.nodes[i].sent.value, other.nodes[i].sent.value);
  }
  EXPECT_NEAR(other.step / one.step, 1, 0.05);
}

TEST(SimulatedRoutesMemory, CountsWhatMeetsAtAStop) {
  SimulatedJob direct = one_slice(program::Route::kDirect, 4, 1);
  SimulatedJob chain = one_slice(program::Route::kRing, 4, 1);
  const auto communication = [](const SimulatedJob& job, std::size_t rank) {
    return job.simulate().memory[rank].communication.value;
  };
  const auto whole = static_cast<std::int64_t>(kBytes);
  EXPECT_EQ(communication(direct, 0) - communication(chain, 0), 2 * whole)
      << "one comes to the owner in the place of three";
  EXPECT_EQ(communication(chain, 2) - communication(direct, 2), 2 * whole)
      << "one comes, and the mean leaves";
}

}  // namespace
}  // namespace autodist
