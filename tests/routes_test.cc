// All-reduces around a ring, up a tree and through one rank per node, proxies, gradients that
// travel as factors: the numbers of plain libtorch on every way, and the bytes that the plan says.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "autodist/capture/capture.h"
#include "autodist/passes/pipeline.h"
#include "autodist/program/compression.h"
#include "autodist/program/route.h"
#include "autodist/program/slice_size.h"
#include "autodist/report/plan.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/simulator.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// "2,1": two ranks on the first node, one on the second.
JobPlace place_of(const std::vector<int>& ranks_per_node) {
  std::string text = "nodes:\n";
  for (std::size_t i = 0; i < ranks_per_node.size(); ++i) {
    text += "  - address: 10.0.0." + std::to_string(i + 1) + "\n    gpus: [";
    for (int j = 0; j < ranks_per_node[i]; ++j) text += (j == 0 ? "" : ", ") + std::to_string(j);
    text += i == 0 ? "]\n    chief: true\n" : "]\n";
  }
  return {cluster::parse_cluster(text, "test"), /*cpu_only=*/true};
}

struct RoutesCase {
  std::string builder;
  std::vector<int> nodes;
};

std::string name_of(const ::testing::TestParamInfo<RoutesCase>& info) {
  std::string name = info.param.builder;
  for (const int ranks : info.param.nodes) name += "_" + std::to_string(ranks);
  for (char& each : name) each = std::isalnum(each) != 0 ? each : '_';
  return name;
}

struct Trained {
  Parameters parameters;
  std::vector<std::uint64_t> bytes_sent;
  std::uint32_t ranks;
};

Trained train(const std::string& model, const std::string& builder, const std::vector<int>& nodes,
              std::int64_t batch = kBatch) {
  const JobPlace place = place_of(nodes);
  const auto ranks = static_cast<std::uint32_t>(cluster::ranks_of(place.cluster, true).size());
  SmallJob job{model, builder, ranks, batch};
  job.example_rows = (batch + ranks - 1) / ranks;
  Trained trained{{}, {}, ranks};
  trained.parameters = run_job(job, &trained.bytes_sent, &place);
  return trained;
}

struct Planned {
  program::Program program;
  cluster::Cluster cluster;
  std::int64_t replica_batch;
};

Planned plan_of(const std::string& model, const std::string& builder, const std::vector<int>& nodes,
                std::int64_t batch) {
  const JobPlace place = place_of(nodes);
  const auto ranks = static_cast<std::int64_t>(cluster::ranks_of(place.cluster, true).size());
  const std::int64_t replica_batch = (batch + ranks - 1) / ranks;
  capture::Options options;
  options.cost_repetitions = 0;
  capture::CapturedStep captured = capture::capture(make_step(model, replica_batch), options);
  ir::declare_updates(captured.graph, ir::parse_optimizer(optimizer_of(model)));
  const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
  passes::Options rewriting;
  rewriting.cpu_only = true;
  return {passes::rewrite(graph, search::build_strategy(builder, *graph, place.cluster),
                          place.cluster, rewriting, builder),
          place.cluster, replica_batch};
}

class EveryWay : public ::testing::TestWithParam<RoutesCase> {};

TEST_P(EveryWay, EqualsPlainLibtorchAndThePlansBytes) {
  const auto& [builder, nodes] = GetParam();
  // A batch that splits evenly: the plan counts a replica's example batch.
  const Trained whole = train("digits", builder, nodes);
  expect_close(whole.parameters, trained_by_sgd("digits", whole.ranks), builder);
  const auto planned = report::traffic_of(plan_of("digits", builder, nodes, kBatch).program);
  for (std::uint32_t rank = 0; rank < whole.ranks; ++rank) {
    EXPECT_EQ(whole.bytes_sent[rank], static_cast<std::uint64_t>(kSteps * planned[rank].sent.value))
        << "rank " << rank;
  }
  const Trained again = train("digits", builder, nodes);
  expect_equal(again.parameters, whole.parameters, "two runs");
}

INSTANTIATE_TEST_SUITE_P(
    , EveryWay,
    ::testing::Values(RoutesCase{"AllReduce:algorithm=ring", {1, 1, 1}},
                      RoutesCase{"AllReduce:algorithm=ring", {2, 2}},
                      RoutesCase{"AllReduce:algorithm=ring,update_at=owner", {1, 1, 1}},
                      RoutesCase{"AllReduce:all_reduce_spec=RING", {1, 1, 1, 1}},
                      RoutesCase{"PartitionedAR:algorithm=ring", {2, 1}},
                      RoutesCase{"AllReduce:algorithm=tree", {1, 1, 1, 1, 1, 1}},
                      RoutesCase{"DDP-like:algorithm=hierarchical", {2, 2}},
                      RoutesCase{"AllReduce:algorithm=hierarchical", {3, 1}},
                      RoutesCase{"AllReduce:algorithm=hierarchical,update_at=owner", {2, 1}},
                      RoutesCase{"PS:local_proxy_variable=true", {2, 2}},
                      RoutesCase{"PartitionedPS:local_proxy_variable=true", {2, 1}},
                      RoutesCase{"PSLoadBalancing:local_proxy_variable=true", {1, 3}},
                      RoutesCase{"AllReduce:algorithm=sufficient_factors", {1, 1}},
                      RoutesCase{"AllReduce:algorithm=sufficient_factors", {2, 1}}),
    name_of);

// Bytes of one step that go to another node, by the sender's address.
std::map<std::string, std::int64_t> planned_between_nodes(const program::Program& program) {
  std::map<std::string, std::int64_t> sent;
  for (const program::Slice& slice : program.slices) {
    const program::Loads loads = loads_of(program, slice, program.graph->example_batch);
    const Bytes to_owner = loads.contribution + loads.asked;
    const Bytes to_member = loads.result + loads.fetched;
    const std::vector<program::RouteStop> stops = program::stops_of(program, slice);
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const std::string& here = program.ranks[i].node;
      const auto carry = [&](program::Rank to, Bytes bytes) {
        if (program.ranks[to.value].node != here) sent[here] += bytes.value;
      };
      for (const program::Rank to : stops[i].contributes) carry(to, to_owner);
      if (stops[i].onward) carry(*stops[i].onward, to_owner);
      for (const program::Rank to : stops[i].returns) carry(to, to_member);
    }
  }
  return sent;
}

// What the simulator's ranks send in a step, within a node and between nodes.
std::vector<std::int64_t> sent_in_simulation(const sim::Simulation& simulation,
                                             std::uint32_t ranks) {
  std::vector<std::int64_t> sent(ranks);
  for (const program::TraceRow& row : simulation.trace.rows) {
    if (row.activity == program::Activity::kWire) sent[row.rank.value] += row.bytes.value;
  }
  for (std::int64_t& each : sent) {
    EXPECT_EQ(each % simulation.steps, 0) << "steps differ";
    each /= simulation.steps;
  }
  return sent;
}

std::vector<RoutesCase> counted_cases() {
  const std::vector<int> apart{1, 1, 1};
  std::vector<RoutesCase> cases;
  for (const char* builder :
       {"PS", "PSLoadBalancing", "PartitionedPS", "PS:staleness=1", "PSLoadBalancing:sync=false",
        "PS:results=asked", "PartitionedPS:results=asked", "PS:local_proxy_variable=true",
        "AllReduce:algorithm=direct", "AllReduce:algorithm=direct,update_at=owner",
        "AllReduce:algorithm=ring", "AllReduce:algorithm=tree,update_at=owner",
        "AllReduce:algorithm=sufficient_factors"}) {
    cases.push_back({builder, apart});
  }
  // Every codec of slices; a library, which counts nothing here, sends what encodes whole
  // gradients.
  for (const program::CodecTraits& each : program::kCodecs) {
    const std::string name = std::string("compressor=") + each.name;
    std::vector<std::string> codecs;
    if (each.unit == program::EncodedUnit::kElement) codecs = {name, name + "+ef"};
    if (each.unit == program::EncodedUnit::kSlice) codecs = {name + ",density=0.1"};
    for (const std::string& codec : codecs) {
      cases.push_back({"PS:staleness=2," + codec, apart});
      cases.push_back({"PartitionedPS:sync=false," + codec, apart});
      cases.push_back({"AllReduce:algorithm=direct,update_at=owner," + codec, apart});
      // Of averages of some elements the plan has the most that they can be.
      if (each.unit != program::EncodedUnit::kElement) continue;
      cases.push_back({"AllReduce:algorithm=direct," + codec, apart});
    }
  }
  for (const RoutesCase& each :
       {RoutesCase{"PS", {1, 3}}, RoutesCase{"PS:local_proxy_variable=true", {2, 2}},
        RoutesCase{"PSLoadBalancing:local_proxy_variable=true", {1, 3}},
        RoutesCase{"PS:local_proxy_variable=true,compressor=fp16+ef", {1, 3}},
        RoutesCase{"PS:sync=false", {2, 1}}, RoutesCase{"PS:results=asked", {1, 2}},
        RoutesCase{"AllReduce:algorithm=ring", {2, 2}},
        RoutesCase{"AllReduce:algorithm=hierarchical", {3, 1}},
        RoutesCase{"AllReduce:algorithm=hierarchical,update_at=owner", {2, 2}},
        RoutesCase{"AllReduce:algorithm=sufficient_factors", {2, 1}}}) {
    cases.push_back(each);
  }
  return cases;
}

class CountedBytes : public ::testing::TestWithParam<RoutesCase> {};

// All of them count with program/loads.h.
TEST_P(CountedBytes, ThatArePlannedAreSentAndSimulated) {
  const auto& [builder, nodes] = GetParam();
  const Planned job = plan_of("digits", builder, nodes, kBatch);
  const auto planned = report::traffic_of(job.program);
  const Trained trained = train("digits", builder, nodes);
  sim::SimulationOptions options;
  options.trace = true;
  options.symmetry = false;  // a row for every rank
  const sim::Simulation simulation = sim::simulate(
      job.program, job.cluster,
      sim::cost_model(job.program, job.cluster, {job.replica_batch, 1, "V100"}), options);
  const std::vector<std::int64_t> simulated = sent_in_simulation(simulation, trained.ranks);
  // At its end a training has whole copies of the newest version: where a rank's are not, they
  // leave their owner once more.
  const bool once_more = !job.program.keeps_whole_copies() || !job.program.lag();
  for (std::uint32_t rank = 0; rank < trained.ranks; ++rank) {
    const std::int64_t sent = planned[rank].sent.value;
    const std::int64_t last = once_more ? (trained.ranks - 1) * planned[rank].owned.value : 0;
    EXPECT_EQ(trained.bytes_sent[rank], static_cast<std::uint64_t>(kSteps * sent + last))
        << "rank " << rank;
    EXPECT_EQ(simulated[rank], sent) << "rank " << rank;
  }
  std::map<std::string, std::int64_t> between = planned_between_nodes(job.program);
  for (const sim::NodeUse& node : simulation.nodes) {
    EXPECT_EQ(node.sent.value, between[node.node]) << node.node;
  }
}

INSTANTIATE_TEST_SUITE_P(, CountedBytes, ::testing::ValuesIn(counted_cases()), name_of);

// Rows that are not the same at every rank, and an empty one.
TEST(Routes, WeighUnevenRanksBySamples) {
  for (const char* builder :
       {"AllReduce:algorithm=ring", "AllReduce:algorithm=tree", "AllReduce:algorithm=hierarchical",
        "AllReduce:algorithm=sufficient_factors", "PS:results=asked"}) {
    for (const std::int64_t batch : {std::int64_t{3}, std::int64_t{11}}) {
      const Trained trained = train("digits", builder, {2, 2}, batch);
      expect_close(trained.parameters, trained_by_sgd("digits", 4, batch),
                   fmt::format("{}, batch {}", builder, batch));
    }
  }
}

// A parameter server's results cross to the other node once, whoever passes them on there; the sums
// are the same to the last bit.
TEST(Routes, ProxiesSaveTheServersLink) {
  const Trained without = train("digits", "PS", {1, 3});
  const Trained with = train("digits", "PS:local_proxy_variable=true", {1, 3});
  expect_equal(with.parameters, without.parameters, "with proxies");
  EXPECT_EQ(without.bytes_sent[0], 3 * with.bytes_sent[0]);
}

// What travels when is no part of what is computed.
TEST(Results, ThatAreAskedForTrainAsThoseThatArePushed) {
  for (const char* builder : {"PS", "PartitionedPS", "PSLoadBalancing:compressor=fp16+ef"}) {
    const bool options = std::string(builder).find(':') != std::string::npos;
    const Trained pushed = train("digits", builder, {1, 2});
    const Trained asked =
        train("digits", std::string(builder) + (options ? "," : ":") + "results=asked", {1, 2});
    expect_equal(asked.parameters, pushed.parameters, builder);
  }
}

// digits at three samples a rank: its linear layers have far larger gradients than factors.
TEST(SufficientFactors, AreSmallerThanTheGradients) {
  const Trained factors = train("digits", "AllReduce:algorithm=sufficient_factors", {1, 1}, 2);
  const Trained direct = train("digits", "AllReduce", {1, 1}, 2);
  EXPECT_LT(factors.bytes_sent[0], direct.bytes_sent[0] / 2);
}

// A sample's gradient of a linear layer is a product of two vectors, so that of two samples has
// rank two, which PowerSGD of rank two keeps whole.
TEST(PowerSgd, IsTheUncompressedTrainingWhereTheGradientsAreOfItsRank) {
  if (testing_jobs::is_left_out("AllReduce:compressor=powersgd"))
    GTEST_SKIP() << "this build has no Gloo";
  const auto options = torch::dtype(torch::kFloat64);
  const auto make = [&] {
    torch::manual_seed(2);
    const torch::Tensor first = torch::randn({12, 20}, options).set_requires_grad(true);
    const torch::Tensor second = torch::randn({20, 16}, options).set_requires_grad(true);
    TrainingStep step;
    step.name = "two_layers";
    step.parameters = {{"first", first}, {"second", second}};
    step.loss = [=](const Batch& batch) {
      return batch[0].mm(first).tanh().mm(second).square().sum(1).mean();
    };
    step.example = {torch::ones({2, 12}, options)};
    return step;
  };
  const auto rows = [&](int step, std::uint32_t rank) {
    return Batch{torch::linspace(-1, 1.0 + 0.3 * step + rank, 12, options).view({1, 12})};
  };
  const auto train_with = [&](const std::string& builder) {
    return run_job({make(), make()}, builder, "sgd:lr=0.01", kSteps, rows);
  };
  const Parameters exact = train_with("AllReduce");
  const Parameters factored = train_with("AllReduce:compressor=powersgd,rank=2");
  const Parameters lossy = train_with("AllReduce:compressor=powersgd,rank=1");
  expect_close(factored, exact, "of rank 2");
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_FALSE(torch::allclose(lossy[i], exact[i], 1e-6, 1e-6)) << i;
  }
}

TEST(PowerSgd, TwoRunsAreEqualAndUnlikeTheUncompressedOne) {
  const std::string builder = "AllReduce:compressor=powersgd,rank=1";
  if (testing_jobs::is_left_out(builder)) GTEST_SKIP() << "this build has no Gloo";
  const Trained once = train("digits", builder, {1, 1, 1});
  const Trained again = train("digits", builder, {1, 1, 1});
  expect_equal(again.parameters, once.parameters, "two runs");
  EXPECT_GT(largest_difference(once.parameters, trained_by_sgd("digits", 3)), 1e-6)
      << "nothing was compressed";
}

}  // namespace
}  // namespace autodist
