// All-reduces around a ring, up a tree and through one rank per node, proxies, gradients that
// travel as factors: the numbers of plain libtorch on every way, and the bytes that the plan says.

#include <gtest/gtest.h>

#include "autodist/capture/capture.h"
#include "autodist/passes/pipeline.h"
#include "autodist/report/plan.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/simulator.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

constexpr double kTolerance = 1e-9;

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
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    steps.push_back(make_step(model, (batch + ranks - 1) / ranks));
  }
  Trained trained{{}, {}, ranks};
  trained.parameters = run_job(
      steps, builder, optimizer_of(model), kSteps,
      [&](int step, std::uint32_t rank) {
        return rows_of(batch_at(model, step, batch), rank, ranks);
      },
      nullptr, 1, &trained.bytes_sent, &place);
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
  const Parameters plain = train_plain("digits", whole.ranks, kBatch, sgd_of("digits"));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(whole.parameters[i], plain[i], kTolerance, kTolerance)) << i;
  }
  const auto planned = report::traffic_of(plan_of("digits", builder, nodes, kBatch).program);
  for (std::uint32_t rank = 0; rank < whole.ranks; ++rank) {
    EXPECT_EQ(whole.bytes_sent[rank], static_cast<std::uint64_t>(kSteps * planned[rank].sent.value))
        << "rank " << rank;
  }
  const Trained again = train("digits", builder, nodes);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(again.parameters[i].equal(whole.parameters[i])) << "two runs differ";
  }
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

// All of them count with program/loads.h. A node per rank: the simulator counts what leaves nodes.
TEST(Bytes, ThatArePlannedAreSentAndSimulated) {
  const std::vector<int> nodes{1, 1, 1};
  for (const char* builder :
       {"PS", "PSLoadBalancing", "PartitionedPS", "PS:staleness=1", "PS:compressor=fp16+ef",
        "PS:results=asked", "PartitionedPS:results=asked",
        "PSLoadBalancing:compressor=topk,density=0.1", "PS:local_proxy_variable=true",
        "AllReduce:algorithm=direct", "AllReduce:algorithm=direct,update_at=owner",
        "AllReduce:algorithm=direct,compressor=bf16",
        "AllReduce:algorithm=direct,compressor=fp16+ef,update_at=owner", "AllReduce:algorithm=ring",
        "AllReduce:algorithm=tree,update_at=owner", "AllReduce:algorithm=sufficient_factors"}) {
    const Planned job = plan_of("digits", builder, nodes, kBatch);
    const auto planned = report::traffic_of(job.program);
    const Trained trained = train("digits", builder, nodes);
    const sim::Simulation simulation =
        sim::simulate(job.program, job.cluster,
                      sim::cost_model(job.program, job.cluster, {job.replica_batch, 1, "V100"}));
    for (std::uint32_t rank = 0; rank < trained.ranks; ++rank) {
      const std::int64_t sent = planned[rank].sent.value;
      // At its end a training has whole copies: what is asked for leaves its owner once more.
      const bool once_more = !job.program.keeps_whole_copies();
      const std::int64_t last = once_more ? (trained.ranks - 1) * planned[rank].owned.value : 0;
      EXPECT_EQ(trained.bytes_sent[rank], static_cast<std::uint64_t>(kSteps * sent + last))
          << builder << ", rank " << rank;
      EXPECT_EQ(simulation.nodes[rank].sent.value, sent) << builder << ", rank " << rank;
    }
  }
}

// Rows that are not the same at every rank, and an empty one.
TEST(Routes, WeighUnevenRanksBySamples) {
  for (const char* builder :
       {"AllReduce:algorithm=ring", "AllReduce:algorithm=tree", "AllReduce:algorithm=hierarchical",
        "AllReduce:algorithm=sufficient_factors", "PS:results=asked"}) {
    for (const std::int64_t batch : {std::int64_t{3}, std::int64_t{11}}) {
      const Trained trained = train("digits", builder, {2, 2}, batch);
      const Parameters plain = train_plain("digits", 4, batch, sgd_of("digits"));
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(torch::allclose(trained.parameters[i], plain[i], kTolerance, kTolerance))
            << builder << ", batch " << batch << ", parameter " << i;
      }
    }
  }
}

// A parameter server's results cross to the other node once, whoever passes them on there; the sums
// are the same to the last bit.
TEST(Routes, ProxiesSaveTheServersLink) {
  const Trained without = train("digits", "PS", {1, 3});
  const Trained with = train("digits", "PS:local_proxy_variable=true", {1, 3});
  for (std::size_t i = 0; i < with.parameters.size(); ++i) {
    EXPECT_TRUE(with.parameters[i].equal(without.parameters[i])) << i;
  }
  EXPECT_EQ(without.bytes_sent[0], 3 * with.bytes_sent[0]);
}

// What travels when is no part of what is computed.
TEST(Results, ThatAreAskedForTrainAsThoseThatArePushed) {
  for (const char* builder : {"PS", "PartitionedPS", "PSLoadBalancing:compressor=fp16+ef"}) {
    const bool options = std::string(builder).find(':') != std::string::npos;
    const Trained pushed = train("digits", builder, {1, 2});
    const Trained asked =
        train("digits", std::string(builder) + (options ? "," : ":") + "results=asked", {1, 2});
    for (std::size_t i = 0; i < pushed.parameters.size(); ++i) {
      EXPECT_TRUE(asked.parameters[i].equal(pushed.parameters[i])) << builder << ", " << i;
    }
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
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_TRUE(torch::allclose(factored[i], exact[i], kTolerance, kTolerance))
        << i << ": " << (factored[i] - exact[i]).abs().max();
    EXPECT_FALSE(torch::allclose(lossy[i], exact[i], 1e-6, 1e-6)) << i;
  }
}

TEST(PowerSgd, TwoRunsAreEqualAndUnlikeTheUncompressedOne) {
  const std::string builder = "AllReduce:compressor=powersgd,rank=1";
  if (testing_jobs::is_left_out(builder)) GTEST_SKIP() << "this build has no Gloo";
  const Trained once = train("digits", builder, {1, 1, 1});
  const Trained again = train("digits", builder, {1, 1, 1});
  const Parameters plain = train_plain("digits", 3, kBatch, sgd_of("digits"));
  double difference = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(once.parameters[i].equal(again.parameters[i])) << i;
    difference = std::max(difference, (once.parameters[i] - plain[i]).abs().max().item<double>());
  }
  EXPECT_GT(difference, 1e-6) << "nothing was compressed";
}

}  // namespace
}  // namespace autodist
