#include "tests/threaded_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>

#include "autodist/base/clock.h"
#include "autodist/capture/capture.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/comm/testing/in_process.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"
#include "autodist/job/torch/shape_cache.h"
#include "autodist/passes/pipeline.h"
#include "autodist/program/transition.h"
#include "autodist/search/builders/builders.h"

namespace autodist::testing_jobs {
namespace {

// As a model that is on the device.
capture::Bindings moved(const capture::Bindings& bindings, const torch::Device& device) {
  capture::Bindings there;
  const auto move = [&](const std::vector<torch::Tensor>& from, std::vector<torch::Tensor>& to) {
    for (const torch::Tensor& each : from) to.push_back(each.to(device));
  };
  move(bindings.variables, there.variables);
  move(bindings.buffers, there.buffers);
  move(bindings.constants, there.constants);
  return there;
}

void copy_back(const capture::Bindings& there, const capture::Bindings& bindings) {
  for (std::size_t i = 0; i < bindings.variables.size(); ++i) {
    torch::Tensor here = bindings.variables[i];
    here.copy_(there.variables[i]);
  }
}

// As programs do between two steps: rows of tables are not asked for before synchronize().
void read_at_end(exec::Runner& runner, const program::Program& program,
                 const capture::Bindings& bindings) {
  const auto read = [&] {
    for (const torch::Tensor& each : bindings.variables) each.to(torch::kCPU);
  };
  runner.settle();
  if (program.keeps_whole_copies()) read();
  runner.synchronize();
  read();
}

}  // namespace

void expect_close(const Parameters& ours, const Parameters& plain, const std::string& what,
                  double absolute) {
  ASSERT_EQ(ours.size(), plain.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i], plain[i], 1e-9, absolute))
        << what << ", " << i << ": " << (ours[i] - plain[i]).abs().max().item<double>();
  }
}

void expect_equal(const Parameters& ours, const Parameters& others, const std::string& what) {
  ASSERT_EQ(ours.size(), others.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(ours[i].equal(others[i]))
        << what << ", " << i << ": " << (ours[i] - others[i]).abs().max().item<double>();
  }
}

Parameters run_job(const std::vector<TrainingStep>& ranks_steps, const std::string& builder,
                   const std::string& optimizer, int steps,
                   const std::function<Batch(int step, std::uint32_t part)>& rows,
                   const exec::UserRules* user_rules, std::uint32_t micro_batches,
                   std::vector<std::uint64_t>* bytes_sent, const JobPlace* place) {
  const auto ranks = static_cast<std::uint32_t>(ranks_steps.size());
  const cluster::Cluster cluster =
      place != nullptr ? place->cluster : cluster::read_cluster("local:" + std::to_string(ranks));
  passes::Options rewriting;
  rewriting.micro_batches = micro_batches;
  rewriting.cpu_only = place != nullptr && place->cpu_only;
  if (place != nullptr) rewriting.loss_scaling = place->loss_scaling;
  comm::InProcessHub hub(ranks);
  std::vector<Parameters> results(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  if (bytes_sent != nullptr) bytes_sent->resize(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        const bool placed = place != nullptr && !place->devices.empty();
        const torch::Device device = placed ? place->devices.at(r) : torch::kCPU;
        const bool asks = !device.is_cpu() && place->on_thread;
        const std::shared_ptr<void> kept = asks ? place->on_thread() : nullptr;
        const SteadyClock clock;
        const std::unique_ptr<comm::Transport> transport = hub.connect(r);
        TrainingStep step = ranks_steps[r];
        const bool moves = !device.is_cpu() && place->move;
        if (moves) place->move(step);
        capture::Options options;
        options.cost_repetitions = 0;
        capture::CapturedStep captured = capture::capture(step, options);
        ir::declare_updates(captured.graph, ir::parse_optimizer(optimizer));
        const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
        const bool planned = place != nullptr && !place->plan.empty();
        const strategy::Strategy strategy = planned
                                                ? strategy::deserialize(place->plan, "plan")
                                                : search::build_strategy(builder, *graph, cluster);
        const auto program = std::make_shared<const program::Program>(
            passes::rewrite(graph, strategy, cluster, rewriting, builder));
        comm::agree(*transport, "program", program::digest_of(*program), builder, Seconds{60});
        const capture::Bindings model =
            capture::bind(*graph, step, capture::device_of(step), captured.tensors.constants);
        const capture::Bindings bindings = device.is_cpu() || moves ? model : moved(model, device);
        exec::broadcast_initial(*transport, *graph, bindings, Seconds{60});
        std::unique_ptr<comm::Collectives> collectives;
        if (place != nullptr && place->collectives) {
          collectives = place->collectives(r);
        } else if (!program->collectives.empty()) {
          collectives = comm::make_collectives(*transport, "127.0.0.1", device.str(), Seconds{60});
        }
        exec::RunnerOptions runner_options;
        runner_options.job_seed = kSeed;
        runner_options.user_rules = user_rules;
        runner_options.wait_limit = Seconds{60};
        if (place != nullptr) runner_options.on_nonfinite = place->on_nonfinite;
        auto runner = std::make_unique<exec::Runner>(
            program, program::Rank(r), bindings,
            exec::RunnerConnections{transport.get(), collectives.get(), &clock}, runner_options);
        program::Program runner_program = *program;
        job::ShapeCache shapes(step, true, captured.tensors, bindings.variables,
                               captured.single_sample_differs, program, program::Rank(r));
        // As StepRun does.
        const auto change_plan = [&](const std::string& next_builder, int step_number) {
          const auto next = std::make_shared<const program::Program>(
              passes::rewrite(graph, search::build_strategy(next_builder, *graph, cluster), cluster,
                              rewriting, next_builder));
          runner->settle();
          runner->of_all(exec::Topic::kPlanned, "settled");
          const program::Transition moves = program::transition(runner_program, *next);
          program::verify(moves, runner_program, *next);
          std::optional<ir::LossScale> scale;
          if (rewriting.loss_scaling) scale = runner->loss_scale();
          exec::RankState state = runner->hand_over(moves);
          state.scale = scale;
          runner->finish();
          runner.reset();
          runner_options.first_step = static_cast<std::uint64_t>(step_number);
          ++runner_options.exchange.generation;
          runner = std::make_unique<exec::Runner>(
              next, program::Rank(r), bindings,
              exec::RunnerConnections{transport.get(), collectives.get(), &clock}, runner_options,
              std::move(state));
          shapes.adopt(next);
          runner_program = *next;
        };
        for (int i = 0; i < steps; ++i) {
          const auto changes = static_cast<std::size_t>(i);
          if (place != nullptr && i > 0 && changes <= place->later_builders.size()) {
            change_plan(place->later_builders[changes - 1], i);
          }
          const Batch own = rows(i, program->batch_part(program::Rank(r)));
          if (program->is_placed()) {
            std::vector<Batch> parts;
            for (std::uint32_t part = 0; part < micro_batches; ++part) {
              parts.push_back(rows_of(own, part, micro_batches));
            }
            runner->step_of_stage(parts);
            continue;
          }
          for (std::uint32_t part = 0; part < micro_batches; ++part) {
            shapes.step(*runner, rows_of(own, part, micro_batches), part + 1 == micro_batches);
          }
        }
        if (place != nullptr && place->reads_at_end) read_at_end(*runner, *program, bindings);
        runner->finish();
        if (bytes_sent != nullptr) bytes_sent->at(r) = runner->counters().payload_bytes_sent;
        if (!device.is_cpu() && !moves) copy_back(bindings, model);
        for (const torch::Tensor& each : copies_of(step)) {
          results[r].push_back(each.to(torch::kCPU));
        }
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
    expect_equal(results[r], results[0], fmt::format("rank {} beside the chief", r));
  }
  return results[0];
}

Parameters run_job(const SmallJob& job, std::vector<std::uint64_t>* bytes_sent,
                   const JobPlace* place) {
  const std::int64_t example = job.example_rows > 0 ? job.example_rows : kBatch / job.ranks;
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    steps.push_back(make_step(job.model, example));
  }
  return run_job(
      steps, job.builder, job.optimizer.empty() ? optimizer_of(job.model) : job.optimizer, kSteps,
      [&](int step, std::uint32_t rank) {
        return rows_of(batch_at(job.model, step, job.batch), rank, job.ranks);
      },
      job.user_rules, job.micro_batches, bytes_sent, place);
}

}  // namespace autodist::testing_jobs
