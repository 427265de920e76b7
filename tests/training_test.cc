// Ten steps of every small model under every strategy on 1, 2 and 4 ranks (threads over the
// in-process transport), against plain libtorch on the union of the batches; and the same bits
// twice.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/in_process.h"
#include "autodist/exec/replay.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"
#include "autodist/models/catalogue.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/builders/builders.h"

namespace autodist {
namespace {

constexpr int kSteps = 10;
constexpr std::int64_t kBatch = 12;  // of the whole job
constexpr std::uint64_t kSeed = 3;
// Float64; sums in another order than libtorch's own reduction over the batch.
constexpr double kTolerance = 1e-9;

const char* const kOptimizer = "sgd:lr=0.1,momentum=0.9,decay=1e-3";

using Parameters = std::vector<torch::Tensor>;

TrainingStep make_step(const std::string& model, std::int64_t batch) {
  models::ModelOptions options;
  options.batch = batch;
  options.dtype = torch::kFloat64;
  options.seed = kSeed;
  return models::make_model(model, options);
}

// The whole job's batch at a step.
Batch batch_at(const std::string& model, int step) {
  models::ModelOptions options;
  options.dtype = torch::kFloat64;
  options.seed = 100 + static_cast<std::uint64_t>(step);
  return models::find_model(model).synthetic(options, kBatch);
}

Batch rows_of(const Batch& batch, std::uint32_t replica, std::uint32_t count) {
  const auto [begin, end] = ir::replica_rows(batch.front().size(0), replica, count);
  Batch rows;
  for (const torch::Tensor& each : batch) rows.push_back(each.slice(0, begin, end));
  return rows;
}

Parameters copies_of(const TrainingStep& step) {
  Parameters copies;
  for (const NamedTensor& each : step.parameters) copies.push_back(each.tensor.detach().clone());
  return copies;
}

// The job as ranks in threads. Returns the chief's parameters.
Parameters train_distributed(const std::string& model, const std::string& builder,
                             std::uint32_t ranks) {
  const cluster::Cluster cluster = cluster::read_cluster("local:" + std::to_string(ranks));
  comm::InProcessHub hub(ranks);
  std::vector<Parameters> results(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  // Captures take turns and draw from the process's generator: models are made one after another.
  std::vector<TrainingStep> steps;
  for (std::uint32_t r = 0; r < ranks; ++r) steps.push_back(make_step(model, kBatch / ranks));
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        const SteadyClock clock;
        const std::unique_ptr<comm::Transport> transport = hub.connect(r);
        capture::Options options;
        options.cost_repetitions = 0;
        capture::CapturedStep captured = capture::capture(steps[r], options);
        ir::declare_updates(captured.graph, ir::parse_optimizer(kOptimizer));
        const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
        const auto program = std::make_shared<const ir::Program>(passes::rewrite(
            graph, search::build_strategy(builder, *graph, cluster), cluster, {}, builder));
        comm::agree(*transport, "program", ir::digest_of(*program), builder, Seconds{60});
        const exec::Bindings bindings =
            exec::bind(*graph, steps[r], torch::kCPU, captured.tensors.constants);
        exec::broadcast_initial(*transport, *graph, bindings, Seconds{60});
        std::unique_ptr<comm::Collectives> collectives;
        if (!program->collectives.empty()) {
          collectives = comm::make_gloo(*transport, "127.0.0.1", Seconds{60});
        }
        exec::RunnerOptions runner_options;
        runner_options.job_seed = kSeed;
        runner_options.wait_limit = Seconds{60};
        exec::Runner runner(program, ir::Rank(r), bindings,
                            {transport.get(), collectives.get(), &clock}, runner_options);
        for (int step = 0; step < kSteps; ++step) {
          runner.step(rows_of(batch_at(model, step), r, ranks));
        }
        runner.finish();
        results[r] = copies_of(steps[r]);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (std::uint32_t r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(results[r][i].equal(results[0][i])) << "rank " << r << " differs from the chief";
    }
  }
  return results[0];
}

// Plain libtorch. Each replica's rows go through the model with that replica's generator and
// buffers (batch norm keeps statistics per replica); gradients are averaged by samples.
Parameters train_plain(const std::string& model, std::uint32_t replicas) {
  const TrainingStep step = make_step(model, kBatch / replicas);
  std::vector<torch::Tensor> parameters;
  for (const NamedTensor& each : step.parameters) parameters.push_back(each.tensor);
  torch::optim::SGD optimizer(parameters,
                              torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
  std::vector<std::vector<torch::Tensor>> buffers(replicas);
  for (auto& of_replica : buffers) {
    for (const NamedTensor& each : step.buffers) of_replica.push_back(each.tensor.clone());
  }
  for (int i = 0; i < kSteps; ++i) {
    const Batch batch = batch_at(model, i);
    optimizer.zero_grad();
    for (std::uint32_t r = 0; r < replicas; ++r) {
      const Batch rows = rows_of(batch, r, replicas);
      const torch::NoGradGuard no_grad;
      for (std::size_t b = 0; b < step.buffers.size(); ++b) {
        step.buffers[b].tensor.copy_(buffers[r][b]);
      }
      torch::manual_seed(exec::step_seed(kSeed, r, static_cast<std::uint64_t>(i)));
      {
        const torch::AutoGradMode gradients(true);
        const double share =
            static_cast<double>(rows.front().size(0)) / static_cast<double>(kBatch);
        (step.loss(rows) * share).backward();
      }
      for (std::size_t b = 0; b < step.buffers.size(); ++b) {
        buffers[r][b].copy_(step.buffers[b].tensor);
      }
    }
    for (torch::Tensor& parameter : parameters) {
      if (parameter.grad().defined() && parameter.grad().is_sparse()) {
        parameter.mutable_grad() = parameter.grad().to_dense();
      }
    }
    optimizer.step();
  }
  return copies_of(step);
}

struct Case {
  std::string model;
  std::string builder;
  std::uint32_t ranks;
};

class EverySmallModel : public testing::TestWithParam<Case> {};

TEST_P(EverySmallModel, EqualsPlainLibtorchAndItself) {
  const auto& [model, builder, ranks] = GetParam();
  const Parameters ours = train_distributed(model, builder, ranks);
  const Parameters plain = train_plain(model, ranks);
  ASSERT_EQ(ours.size(), plain.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double difference = (ours[i] - plain[i]).abs().max().item<double>();
    EXPECT_LE(difference, kTolerance * (1 + plain[i].abs().max().item<double>())) << "tensor " << i;
  }
  const Parameters again = train_distributed(model, builder, ranks);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].equal(again[i])) << i;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const models::ModelInfo& model : models::catalogue()) {
    if (!model.small) continue;
    for (const char* builder : {"PS", "PSLoadBalancing", "PartitionedPS", "AllReduce",
                                "PartitionedAR", "AllReduce:algorithm=library"}) {
      for (const std::uint32_t ranks : {1u, 2u, 4u}) all.push_back({model.name, builder, ranks});
    }
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name =
      info.param.model + "_" + info.param.builder + "_" + std::to_string(info.param.ranks);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EverySmallModel, testing::ValuesIn(cases()), name_of);

// Wherever the owners sit, the sums are made in rank order: the bits are the same.
TEST(Training, OwnersDoNotChangeTheBits) {
  const Parameters ps = train_distributed("digits", "PS", 2);
  for (const char* builder : {"PSLoadBalancing", "PartitionedPS", "AllReduce", "PartitionedAR"}) {
    const Parameters other = train_distributed("digits", builder, 2);
    for (std::size_t i = 0; i < ps.size(); ++i) EXPECT_TRUE(ps[i].equal(other[i])) << builder;
  }
}

}  // namespace
}  // namespace autodist
