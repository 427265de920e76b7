// Placed graphs: ranks that share the ops of one replica train to the bits of one rank alone,
// whatever stands where; and a pipeline of micro-batches is faster than one batch.

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/in_process.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/placement/from_graph.h"
#include "autodist/search/placement/place.h"
#include "tests/reference.h"

namespace autodist {
namespace {

using namespace testing_jobs;

constexpr int kShort = 4;  // steps

// The stage of every op.
using Placer = std::function<std::vector<std::uint32_t>(const ir::Graph&, std::uint32_t stages)>;

// Every class of ops that must be together, and every other op, goes anywhere.
Placer anywhere(std::uint32_t seed) {
  return [seed](const ir::Graph& graph, std::uint32_t stages) {
    std::mt19937 random(seed);
    std::map<std::uint32_t, std::uint32_t> of_colour;
    std::vector<std::uint32_t> stage_of;
    for (const auto& task : search::placement::task_graph_of(graph, graph.example_batch).tasks) {
      const auto stage = static_cast<std::uint32_t>(random() % stages);
      const bool free = task.colour == search::placement::kNoColour;
      stage_of.push_back(free ? stage : of_colour.emplace(task.colour, stage).first->second);
    }
    return stage_of;
  };
}

// As `autodist place` does for devices that hold 1.3 times their share of the variables.
std::vector<std::uint32_t> balanced(const ir::Graph& graph, std::uint32_t stages) {
  using namespace search::placement;
  const TaskGraph tasks = task_graph_of(graph, graph.example_batch);
  double memory = 0;
  for (const Task& task : tasks.tasks) memory += task.memory;
  PlaceRequest request;
  request.objective = Objective::kThroughput;
  ListDevice device;
  device.memory = 1.3 * memory / stages;
  device.bytes_per_unit = 1e4;
  request.devices.assign(stages, device);
  request.evaluations = 20'000;
  request.placeto = false;
  request.threads = 1;
  const PlaceResult result = place(tasks, request, SteadyClock());
  return {result.placement.begin(), result.placement.end()};
}

strategy::Strategy placed_strategy(const ir::Graph& graph, const cluster::Cluster& cluster,
                                   std::uint32_t stages, const Placer& placer) {
  strategy::Strategy strategy = search::build_strategy("PS", graph, cluster);
  strategy::Placement placement;
  placement.devices = strategy.replicas;
  placement.stages = stages;
  const std::vector<std::uint32_t> stage_of = placer(graph, stages);
  placement.scopes = strategy::scopes_of(graph, stage_of);
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::Variable& variable = graph.variables[i];
    const auto& op = variable.first_use ? variable.first_use : variable.gradient_complete;
    std::get<strategy::PsSynchronizer>(strategy.nodes[i].synchronizer).reduction_destination =
        placement.devices[op ? stage_of[op->value] : 0];
  }
  strategy.placement = placement;
  return strategy;
}

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

void run_rank(const Job& job, comm::Transport& transport, std::uint32_t rank, Outcome& outcome) {
  const SteadyClock clock;
  const TrainingStep step = make_step(job.model, 2);
  capture::Options options;
  options.cost_repetitions = 0;
  capture::CapturedStep captured = capture::capture(step, options);
  ir::declare_updates(captured.graph, ir::parse_optimizer(job.optimizer));
  const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
  const cluster::Cluster cluster = cluster::read_cluster("local:" + std::to_string(job.ranks));
  passes::Options rewriting;
  rewriting.micro_batches = job.micro_batches;
  const strategy::Strategy strategy =
      job.stages == 1 ? search::build_strategy("PSLoadBalancing", *graph, cluster)
                      : placed_strategy(*graph, cluster, job.stages, job.placer);
  const auto program = std::make_shared<const ir::Program>(
      passes::rewrite(graph, strategy::deserialize(strategy::serialize(strategy), "plan"), cluster,
                      rewriting, "plan"));
  comm::agree(transport, "program", ir::digest_of(*program), "placed", Seconds{60});
  const capture::Bindings bindings =
      capture::bind(*graph, step, torch::kCPU, captured.tensors.constants);
  exec::broadcast_initial(transport, *graph, bindings, Seconds{60});
  exec::RunnerOptions runner_options;
  runner_options.job_seed = kSeed;
  runner_options.wait_limit = Seconds{60};
  runner_options.device_time = job.device_time;
  exec::Runner runner(program, ir::Rank(rank), bindings, {&transport, nullptr, &clock},
                      runner_options);
  for (int i = 0; i < job.steps; ++i) {
    const Batch rows = rows_of(batch_at(job.model, i, job.batch), program->batch_part(ir::Rank(rank)),
                               program->batch_parts());
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
  if (rank == 0) outcome.state = runner.gather_state();
  runner.finish();
  outcome.parameters = copies_of(step);
  for (const NamedTensor& each : step.buffers) outcome.buffers.push_back(each.tensor.clone());
}

// By rank. Rethrows what the lowest rank threw.
std::vector<Outcome> run(const Job& job) {
  comm::InProcessHub hub(job.ranks);
  std::vector<Outcome> outcomes(job.ranks);
  std::vector<std::exception_ptr> failures(job.ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto transport = hub.connect(rank);
        run_rank(job, *transport, rank, outcomes[rank]);
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

void expect_equal(const std::vector<torch::Tensor>& ours, const std::vector<torch::Tensor>& alone,
                  const std::string& what) {
  ASSERT_EQ(ours.size(), alone.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(ours[i].equal(alone[i]))
        << what << " " << i << " differs by " << (ours[i] - alone[i]).abs().max().item<double>();
  }
}

// Every rank ends with the losses, parameters, buffers and, at the chief, the optimizer's state of
// one rank that runs the whole graph, bit for bit.
void expect_as_alone(Job job) {
  const std::vector<Outcome> placed = run(job);
  job.ranks = job.stages = 1;
  const Outcome alone = run(job).front();
  for (const Outcome& each : placed) {
    EXPECT_EQ(each.losses, alone.losses);
    expect_equal(each.parameters, alone.parameters, "parameter");
    expect_equal(each.buffers, alone.buffers, "buffer");
  }
  const std::vector<NamedTensor>& state = placed.front().state;
  ASSERT_EQ(state.size(), alone.state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].name, alone.state[i].name);
    EXPECT_TRUE(state[i].tensor.equal(alone.state[i].tensor)) << state[i].name;
  }
}

Job job_of(const std::string& model, std::uint32_t stages, std::uint32_t micro_batches = 1) {
  Job job;
  job.model = model;
  job.optimizer = model.find("sparse") == std::string::npos ? "adamw:lr=1e-3,decay=0.01"
                                                            : "sgd:lr=0.02";
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
  expect_as_alone(job_of(GetParam().model, GetParam().stages, GetParam().micro_batches));
}

TEST_P(Placed, OpsMayStandAnywhere) {
  Job job = job_of(GetParam().model, GetParam().stages, GetParam().micro_batches);
  job.steps = 2;
  job.placer = anywhere(GetParam().stages);
  expect_as_alone(job);
}

INSTANTIATE_TEST_SUITE_P(, Placed,
                         testing::Values(Case{"ncf-small", 2, 1}, Case{"ncf-small", 4, 3},
                                         Case{"gpt-small", 2, 1}, Case{"gpt-small", 4, 4},
                                         Case{"digits", 2, 1}, Case{"digits-norm", 4, 2},
                                         Case{"bert-small", 3, 2}, Case{"resnet-small", 2, 4},
                                         Case{"ncf-small-sparse", 2, 2}));

}  // namespace
}  // namespace autodist
