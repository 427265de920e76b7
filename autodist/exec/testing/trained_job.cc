#include "autodist/exec/testing/trained_job.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/collectives.h"

namespace autodist::exec::testing {
namespace {

// Sums over the ranks of one process, in rank order.
class SumOfThreads {
 public:
  explicit SumOfThreads(std::uint32_t size) : parts_(size) {}

  void all_reduce(std::uint32_t rank, void* data, std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto* values = static_cast<double*>(data);
    parts_[rank].assign(values, values + count);
    const std::uint64_t round = round_;
    if (++arrived_ == parts_.size()) {
      total_.assign(count, 0);
      for (const auto& part : parts_) {
        for (std::size_t i = 0; i < count; ++i) total_[i] += part[i];
      }
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ > round || left_; });
    if (round_ == round) throw Error(ErrorCode::kPeersLost, "all-reduce: a rank has left");
    std::copy(total_.begin(), total_.end(), values);
  }

  // A rank comes no more, as where a connection ends.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool left_ = false;
  std::vector<std::vector<double>> parts_;
  std::vector<double> total_;
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
};

class ThreadCollectives final : public comm::Collectives {
 public:
  ThreadCollectives(SumOfThreads& sum, std::uint32_t rank) : sum_(sum), rank_(rank) {}
  void all_reduce(void* data, std::size_t count, DType dtype) override {
    AD_CHECK(dtype == DType::kFloat64) << name_of(dtype);
    sum_.all_reduce(rank_, data, count);
  }
  [[nodiscard]] std::string describe() const override { return "threads"; }

 private:
  SumOfThreads& sum_;
  std::uint32_t rank_;
};

void set_rate(Runner& runner, const ir::Graph& graph, double lr) {
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    runner.set_options(ir::VariableId(i), {{"lr", lr}});
  }
}

void change(const Job& job, Runner& runner, Values& values, std::size_t step) {
  for (std::size_t i = 0; job.settles && i < values.size(); ++i) {
    runner.settle(ir::VariableId(i));
  }
  const torch::NoGradGuard no_gradients;
  job.change(values, step);
}

void run_rank(const Job& job, const std::shared_ptr<const program::Program>& program,
              comm::InProcessHub& hub, SumOfThreads& sum, std::uint32_t rank, Values values,
              Outcome& outcome, std::mutex& mutex) {
  const SteadyClock clock;
  const auto transport = hub.connect(rank);
  ThreadCollectives collectives(sum, rank);
  if (rank != 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(job.chief_is_ahead.value));
  RunnerOptions options;
  options.wait_limit = Seconds(20);
  options.first_step = job.first_step;
  options.trace = job.trace;
  options.on_nonfinite = job.on_nonfinite;
  Runner runner(program, program::Rank(rank), capture::Bindings{values, {}, {}},
                {transport.get(), &collectives, &clock}, options, {job.state, {}});
  std::vector<std::shared_ptr<const StepSums>> sums;
  if (!program->ranks[rank].replica) {
    runner.serve([] {});
  } else {
    for (std::size_t step = job.first_step; step < job.batches.size(); ++step) {
      const Batch batch = random_batch(job.batches[step], step);
      const Batch rows = rows_of(batch, rank, job.plan.ranks);
      if (job.lr) set_rate(runner, *job.graph, job.lr(step));
      const StepResult result = runner.step(rows);
      sums.push_back(result.sums);
      if (job.change && job.changes(rank)) change(job, runner, values, step);
      const std::lock_guard<std::mutex> lock(mutex);
      outcome.losses[step] += result.loss * static_cast<double>(result.samples) /
                              static_cast<double>(std::max<std::int64_t>(1, job.batches[step]));
    }
  }
  std::vector<double> told;
  for (const auto& each : sums) {
    runner.await(*each);
    const bool any = !each->sums().empty();
    told.push_back(any ? each->sums()[0] / static_cast<double>(each->samples()) : 0);
  }
  std::vector<NamedTensor> state;
  if (rank == 0) state = runner.gather_state().get();
  runner.finish();
  transport->close(Seconds(1));
  const std::lock_guard<std::mutex> lock(mutex);
  if (rank == 0) outcome.state = std::move(state);
  outcome.told[rank] = std::move(told);
  outcome.traces[rank] = runner.take_trace();
  outcome.variables[rank] = values;
}

}  // namespace

ir::UpdateRule sgd() {
  ir::UpdateRule rule = ir::default_rule(ir::Rule::kSgd);
  rule.options["lr"] = 0.1;
  rule.options["momentum"] = 0.9;
  return rule;
}

Outcome train(const Job& job) {
  const auto program = program_of(job.graph, job.plan);
  program::verify(*program);
  const auto size = static_cast<std::uint32_t>(program->ranks.size());
  comm::InProcessHub hub(size);
  if (job.fate) hub.bend(job.fate);
  SumOfThreads sum(size);
  Outcome outcome;
  outcome.variables.resize(size);
  outcome.losses.resize(job.batches.size());
  outcome.traces.resize(size);
  outcome.told.resize(size);
  std::mutex mutex;
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Values values = initial_values(*job.graph, 7);
        for (std::size_t i = 0; i < job.values.size(); ++i) values[i].copy_(job.values[i]);
        run_rank(job, program, hub, sum, rank, values, outcome, mutex);
      } catch (...) {
        errors[rank] = std::current_exception();
        sum.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return outcome;
}

Outcome train_with_libtorch(const Job& job) {
  Values values = initial_values(*job.graph, 7);
  for (torch::Tensor& value : values) value.requires_grad_();
  const ir::UpdateRule& rule = job.graph->variables.front().update;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (rule.rule == ir::Rule::kAdam) {
    optimizer = std::make_unique<torch::optim::Adam>(
        values, torch::optim::AdamOptions(rule.options.at("lr")));
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(
        values,
        torch::optim::SGDOptions(rule.options.at("lr")).momentum(rule.options.at("momentum")));
  }
  Outcome outcome;
  for (std::size_t step = 0; step < job.batches.size(); ++step) {
    optimizer->zero_grad();
    const torch::Tensor loss = two_layers_loss(values, random_batch(job.batches[step], step));
    loss.backward();
    if (job.lr) {
      for (auto& group : optimizer->param_groups()) group.options().set_lr(job.lr(step));
    }
    if (!job.graph->clips.empty()) {
      Values clipped;
      for (const ir::VariableId id : job.graph->clips[0].variables) {
        clipped.push_back(values[id.value]);
      }
      torch::nn::utils::clip_grad_norm_(clipped, job.graph->clips[0].max_norm);
    }
    optimizer->step();
    if (job.change) {
      const torch::NoGradGuard no_gradients;
      job.change(values, step);
    }
    outcome.losses.push_back(loss.item<double>());
  }
  for (torch::Tensor& value : values) value = value.detach();
  outcome.variables.push_back(values);
  return outcome;
}

double largest_difference(const Values& a, const Values& b) {
  AD_CHECK(a.size() == b.size()) << a.size() << " and " << b.size() << " tensors";
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = (a[i] - b[i]).abs().max().item<double>();
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

bool same_bits(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace autodist::exec::testing
