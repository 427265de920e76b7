// Placed graphs: ranks that share the ops of one replica train to the bits of one rank alone,
// whatever stands where, in one batch or in a pipeline of micro-batches.

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/testing/in_process.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"
#include "autodist/passes/pipeline.h"
#include "tests/stages.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

constexpr int kShort = 4;  // steps

struct Job {
  std::string model;
  std::string optimizer;
  std::uint32_t ranks = 1;
  std::uint32_t stages = 1;  // 1: not placed
  std::uint32_t micro_batches = 1;
  Placer placer = balanced;
  std::int64_t batch = kBatch;
  int steps = kShort;
  std::function<Seconds(const ir::Op&, std::int64_t)> device_time;
};

struct Outcome {
  std::vector<double> losses;  // by step, of the first rank
  Parameters parameters;       // of the first rank
  std::vector<torch::Tensor> buffers;
  std::vector<NamedTensor> state;
  Seconds last_step;
};

capture::CapturedStep captured_of(const Job& job, const TrainingStep& step) {
  capture::Options options;
  options.cost_repetitions = 0;
  capture::CapturedStep captured = capture::capture(step, options);
  ir::declare_updates(captured.graph, ir::parse_optimizer(job.optimizer));
  return captured;
}

cluster::Cluster cluster_of(const Job& job) {
  return cluster::read_cluster("local:" + std::to_string(job.ranks));
}

// `plan` is the strategy's file, the same for every rank.
void run_rank(const Job& job, const TrainingStep& step, const std::string& plan,
              comm::Transport& transport, std::uint32_t rank, Outcome& outcome) {
  const SteadyClock clock;
  capture::CapturedStep captured = captured_of(job, step);
  const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
  passes::Options rewriting;
  rewriting.micro_batches = job.micro_batches;
  const auto program = std::make_shared<const program::Program>(passes::rewrite(
      graph, strategy::deserialize(plan, "plan"), cluster_of(job), rewriting, "plan"));
  comm::agree(transport, "program", program::digest_of(*program), "placed", Seconds{60});
  const capture::Bindings bindings =
      capture::bind(*graph, step, torch::kCPU, captured.tensors.constants);
  exec::broadcast_initial(transport, *graph, bindings, Seconds{60});
  exec::RunnerOptions runner_options;
  runner_options.job_seed = kSeed;
  runner_options.wait_limit = Seconds{60};
  runner_options.device_time = job.device_time;
  exec::Runner runner(program, program::Rank(rank), bindings, {&transport, nullptr, &clock},
                      runner_options);
  for (int i = 0; i < job.steps; ++i) {
    const Batch rows = rows_of(batch_at(job.model, i, job.batch),
                               program->batch_part(program::Rank(rank)), program->batch_parts());
    std::vector<Batch> parts;
    for (std::uint32_t m = 0; m < job.micro_batches; ++m) {
      Batch part = rows_of(rows, m, job.micro_batches);
      if (part.front().size(0) > 0) parts.push_back(std::move(part));
    }
    const Seconds start = clock.now();
    double loss = 0;
    if (program->is_placed()) {
      loss = runner.step_of_stage(parts).loss;
    } else {
      double samples = 0;
      for (std::size_t m = 0; m < parts.size(); ++m) {
        const bool last = m + 1 == parts.size();
        const auto part = last ? runner.step(parts[m]) : runner.accumulate(parts[m]);
        loss += part.loss * (parts.size() > 1 ? static_cast<double>(part.samples) : 1);
        samples += static_cast<double>(part.samples);
      }
      if (parts.size() > 1) loss /= samples;
    }
    outcome.losses.push_back(loss);
    outcome.last_step = clock.now() - start;
  }
  runner.synchronize();
  if (rank == 0) outcome.state = runner.gather_state().get();
  runner.finish();
  outcome.parameters = copies_of(step);
  for (const NamedTensor& each : step.buffers) outcome.buffers.push_back(each.tensor.clone());
}

// By rank. Rethrows what the lowest rank threw.
std::vector<Outcome> run(const Job& job) {
  // Models draw their parameters from the process's one generator: not in the ranks' threads.
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) steps.push_back(make_step(job.model, 2));
  const std::string plan = strategy::serialize(
      strategy_of(captured_of(job, steps.front()).graph, cluster_of(job), job.stages, job.placer));
  comm::InProcessHub hub(job.ranks);
  std::vector<Outcome> outcomes(job.ranks);
  std::vector<std::exception_ptr> failures(job.ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto transport = hub.connect(rank);
        run_rank(job, steps[rank], plan, *transport, rank, outcomes[rank]);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return outcomes;
}

// Every rank ends with the losses, parameters, buffers and, at the chief, the optimizer's state of
// as many ranks as there are replicas, which run the whole graph, bit for bit.
void expect_as_whole_graphs(Job job) {
  const std::vector<Outcome> placed = run(job);
  const std::uint32_t stages = std::exchange(job.stages, 1U);
  job.ranks /= stages;
  const std::vector<Outcome> whole = run(job);
  for (std::size_t rank = 0; rank < placed.size(); ++rank) {
    EXPECT_EQ(placed[rank].losses, whole[rank / stages].losses);
    expect_equal(placed[rank].parameters, whole.front().parameters, "parameter");
    expect_equal(placed[rank].buffers, whole[rank / stages].buffers, "buffer");
  }
  const std::vector<NamedTensor>& state = placed.front().state;
  ASSERT_EQ(state.size(), whole.front().state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].name, whole.front().state[i].name);
    EXPECT_TRUE(state[i].tensor.equal(whole.front().state[i].tensor)) << state[i].name;
  }
}

Job job_of(const std::string& model, std::uint32_t stages, std::uint32_t micro_batches = 1) {
  Job job;
  job.model = model;
  job.optimizer =
      model.find("sparse") == std::string::npos ? "adamw:lr=1e-3,decay=0.01" : "sgd:lr=0.02";
  job.ranks = job.stages = stages;
  job.micro_batches = micro_batches;
  return job;
}

struct Case {
  std::string model;
  std::uint32_t stages;
  std::uint32_t micro_batches;
};

class Placed : public testing::TestWithParam<Case> {};

TEST_P(Placed, BalancedStagesTrainAsOneRank) {
  expect_as_whole_graphs(job_of(GetParam().model, GetParam().stages, GetParam().micro_batches));
}

TEST_P(Placed, OpsMayStandAnywhere) {
  Job job = job_of(GetParam().model, GetParam().stages, GetParam().micro_batches);
  job.steps = 2;
  job.placer = anywhere(GetParam().stages);
  expect_as_whole_graphs(job);
}

INSTANTIATE_TEST_SUITE_P(, Placed,
                         testing::Values(Case{"ncf-small", 2, 1}, Case{"ncf-small", 4, 3},
                                         Case{"gpt-small", 2, 1}, Case{"gpt-small", 4, 4},
                                         Case{"digits", 2, 1}, Case{"digits-norm", 4, 2},
                                         Case{"bert-small", 3, 2}, Case{"resnet-small", 2, 4},
                                         Case{"ncf-small-sparse", 2, 2}));

TEST(Stages, ReplicasOfStagesTrainAsReplicas) {
  for (const std::string model : {"gpt-small", "digits-norm"}) {
    Job job = job_of(model, 2, 2);
    job.ranks = 4;
    expect_as_whole_graphs(job);
  }
}

TEST(Stages, BatchesMayBeSmallerThanTheMicroBatchesAreMany) {
  Job job = job_of("digits", 2, 4);
  job.batch = 3;
  expect_as_whole_graphs(job);
}

TEST(Stages, WhatBelongsTogetherIsNotParted) {
  Job job = job_of("digits", 2);
  job.placer = [](const ir::Graph& graph, std::uint32_t stages) {
    std::vector<std::uint32_t> stage_of;
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      stage_of.push_back(static_cast<std::uint32_t>(i % stages));
    }
    return stage_of;
  };
  try {
    run(job);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInfeasible);
    EXPECT_NE(std::string(error.what()).find("Place them together"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace autodist
