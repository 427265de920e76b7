#include "autodist/exec/runner.h"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "autodist/base/error.h"
#include "autodist/comm/in_process.h"
#include "autodist/exec/testing/small_steps.h"

namespace autodist::exec {
namespace {

using testing::Plan;
using Values = std::vector<torch::Tensor>;

ir::UpdateRule sgd(double momentum = 0.9) {
  ir::UpdateRule rule = ir::default_rule(ir::Rule::kSgd);
  rule.options["lr"] = 0.1;
  rule.options["momentum"] = momentum;
  return rule;
}

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
    ASSERT_EQ(dtype, DType::kFloat64);
    sum_.all_reduce(rank_, data, count);
  }
  [[nodiscard]] std::string describe() const override { return "threads"; }

 private:
  SumOfThreads& sum_;
  std::uint32_t rank_;
};

struct Job {
  std::shared_ptr<ir::Graph> graph = testing::two_layers(sgd());
  Plan plan;
  std::vector<std::int64_t> batches = {8, 8, 8, 8};  // global samples, by step
  comm::InProcessHub::Fate fate;
  std::uint64_t first_step = 0;
  Values values;                   // initial ones; empty: by the seed of all tests
  std::vector<NamedTensor> state;  // of the update rules, at the first step
  Seconds chief_is_ahead{0};       // by so much it begins before the others
  bool trace = false;
  OnNonFinite on_nonfinite = OnNonFinite::kStop;
  // What somebody writes into the variables after a step, at which ranks, and the rate of a step.
  std::function<void(Values&, std::size_t step)> change;
  std::function<bool(std::uint32_t rank)> changes = [](std::uint32_t) { return true; };
  bool settles = true;  // before it is written
  std::function<double(std::size_t step)> lr;
};

struct Outcome {
  std::vector<Values> variables;          // by rank
  std::vector<double> losses;             // of the union, by step
  std::vector<std::vector<double>> told;  // the loss of the union as each rank learns it, by rank
  std::vector<NamedTensor> state;
  std::vector<program::Trace> traces;  // by rank
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
      const Batch batch = testing::random_batch(job.batches[step], step);
      const Batch rows = testing::rows_of(batch, rank, job.plan.ranks);
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

// Trains with one thread per rank. Rethrows what the lowest rank threw.
Outcome train(const Job& job) {
  const auto program = testing::program_of(job.graph, job.plan);
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
        Values values = testing::initial_values(*job.graph, 7);
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

// The job on the union of the ranks' batches, by libtorch alone.
Outcome train_with_libtorch(const Job& job) {
  Values values = testing::initial_values(*job.graph, 7);
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
    const torch::Tensor loss =
        testing::two_layers_loss(values, testing::random_batch(job.batches[step], step));
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
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

bool same_bits(const Values& a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b[i])) return false;
  }
  return true;
}

void expect_as_libtorch(const Job& job) {
  const Outcome expected = train_with_libtorch(job);
  const Outcome outcome = train(job);
  for (std::uint32_t rank = 0; rank < job.plan.ranks; ++rank) {
    EXPECT_LT(largest_difference(outcome.variables[rank], expected.variables[0]), 1e-10)
        << "rank " << rank;
    EXPECT_TRUE(same_bits(outcome.variables[rank], outcome.variables[0])) << "rank " << rank;
  }
  for (std::size_t step = 0; step < job.batches.size(); ++step) {
    EXPECT_NEAR(outcome.losses[step], expected.losses[step], 1e-10) << "step " << step;
    for (std::uint32_t rank = 0; rank < job.plan.ranks; ++rank) {
      EXPECT_NEAR(outcome.told[rank][step], expected.losses[step], 1e-10) << "step " << step;
      EXPECT_EQ(outcome.told[rank][step], outcome.told[0][step]) << "step " << step;
    }
  }
}

std::function<std::uint32_t(std::uint32_t)> spread_over(std::uint32_t ranks) {
  return [ranks](std::uint32_t slice) { return slice % ranks; };
}

TEST(Runner, OneRankTrainsAsLibtorch) { expect_as_libtorch(Job{}); }

TEST(Runner, ParameterServersTrainAsLibtorchOnTheUnionOfTheBatch) {
  for (std::uint32_t ranks : {2, 3}) {
    Job job;
    job.plan.ranks = ranks;
    expect_as_libtorch(job);
    job.plan.owner = spread_over(ranks);
    expect_as_libtorch(job);
  }
}

TEST(Runner, EveryRankMayApplyTheUpdateItself) {
  Job job;
  job.plan.ranks = 3;
  job.plan.update_at = program::UpdateAt::kEveryRank;
  job.plan.owner = spread_over(3);
  expect_as_libtorch(job);
}

TEST(Runner, ShardsMayLieAlongAnyAxis) {
  for (std::uint32_t axis : {0, 1}) {
    for (const auto update_at : {program::UpdateAt::kOwner, program::UpdateAt::kEveryRank}) {
      Job job;
      job.plan.ranks = 2;
      job.plan.axis = axis;
      job.plan.parts = 3;
      job.plan.slice_elements = 4;
      job.plan.update_at = update_at;
      job.plan.owner = spread_over(2);
      expect_as_libtorch(job);
    }
  }
}

TEST(Runner, OneSliceMayCarryManyVariables) {
  for (const auto update_at : {program::UpdateAt::kOwner, program::UpdateAt::kEveryRank}) {
    Job job;
    job.plan.ranks = 2;
    job.plan.fuse = true;
    job.plan.update_at = update_at;
    expect_as_libtorch(job);
  }
}

TEST(Runner, LibraryCollectivesTrainAsLibtorch) {
  Job job;
  job.plan.ranks = 3;
  job.plan.library = true;
  expect_as_libtorch(job);
}

TEST(Runner, UnevenAndEmptyBatchesAreWeightedBySamples) {
  for (const bool library : {false, true}) {
    for (std::uint32_t ranks : {2, 3}) {
      Job job;
      job.plan.ranks = ranks;
      job.plan.library = library;
      job.plan.owner = spread_over(ranks);
      job.batches = {7, 1, 7, 2, 4};  // at 1 and 2, some ranks have no row
      expect_as_libtorch(job);
    }
  }
}

TEST(Runner, ARankMayOnlyServe) {
  Job job;
  job.plan.ranks = 2;
  job.plan.serves = true;
  job.plan.owner = [](std::uint32_t slice) { return slice % 2 == 0 ? 2U : 1U; };
  expect_as_libtorch(job);
}

TEST(Runner, OwnersKeepAdamsState) {
  ir::UpdateRule adam = ir::default_rule(ir::Rule::kAdam);
  adam.options["lr"] = 0.01;
  for (const bool library : {false, true}) {
    Job job;
    job.graph = testing::two_layers(adam);
    job.plan.ranks = 2;
    job.plan.library = library;
    job.plan.owner = spread_over(2);
    expect_as_libtorch(job);
  }
}

// Parameter servers, all-reduces with the update at every rank, a library's, owners that only
// serve.
std::vector<Plan> plans_of_all_kinds() {
  std::vector<Plan> plans(5);
  for (Plan& plan : plans) {
    plan.ranks = 2;
    plan.owner = spread_over(2);
  }
  plans[1].update_at = program::UpdateAt::kEveryRank;
  plans[2].library = true;
  plans[3].serves = true;
  plans[3].owner = [](std::uint32_t) { return 2U; };
  plans[4].fuse = true;
  return plans;
}

TEST(Runner, WhatAllRanksWriteBetweenTwoStepsIsTheNewValue) {
  for (const Plan& plan : plans_of_all_kinds()) {
    Job job;
    job.plan = plan;
    job.change = [](Values& values, std::size_t step) {
      if (step == 1) values[0].clamp_(-0.1, 0.1);
      if (step == 2) values[3].data_ptr<double>()[1] = 0.5;  // no counter sees it
    };
    expect_as_libtorch(job);
  }
}

TEST(Runner, WhatOneRankWritesAloneIsAnErrorThatNamesIt) {
  for (Plan plan : plans_of_all_kinds()) {
    Job job;
    job.plan = plan;
    job.change = [](Values& values, std::size_t) { values[0].zero_(); };
    job.changes = [](std::uint32_t rank) { return rank == 1; };
    try {
      train(job);
      ADD_FAILURE() << "rank 1 trained another model";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("'w1' is not changed at rank 0, changed"), std::string::npos) << text;
    }
  }
}

TEST(Runner, AWriteToATensorThatIsNotSettledIsAnError) {
  Job job;
  job.plan.ranks = 2;
  job.settles = false;
  job.change = [](Values& values, std::size_t) { values[0].zero_(); };
  try {
    train(job);
    ADD_FAILURE() << "a write was lost";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("synchronize()"), std::string::npos) << error.what();
  }
}

TEST(Runner, OptionsOfTheRuleMayChangeFromStepToStep) {
  for (const ir::Rule rule : {ir::Rule::kSgd, ir::Rule::kAdam}) {
    for (const Plan& plan : plans_of_all_kinds()) {
      Job job;
      job.graph = testing::two_layers(ir::default_rule(rule));
      job.plan = plan;
      job.lr = [](std::size_t step) { return 0.1 / static_cast<double>(step + 1); };
      expect_as_libtorch(job);
    }
  }
}

// A checkpoint after two steps, taken up by a job of another shape.
TEST(Runner, GatheredStateContinuesTheRun) {
  ir::UpdateRule adam = ir::default_rule(ir::Rule::kAdam);
  adam.options["lr"] = 0.01;
  Job whole;
  whole.graph = testing::two_layers(adam);
  whole.plan.ranks = 2;
  whole.plan.axis = 1;
  whole.plan.parts = 2;
  whole.plan.owner = spread_over(2);
  const Outcome expected = train(whole);

  Job half = whole;
  half.batches.resize(2);
  const Outcome middle = train(half);
  EXPECT_EQ(middle.state.size(), 2 * 4);
  for (const NamedTensor& each : middle.state) EXPECT_GT(each.tensor.abs().max().item<double>(), 0);

  Job rest = whole;
  rest.first_step = 2;
  rest.values = middle.variables[0];
  rest.state = middle.state;
  EXPECT_TRUE(same_bits(train(rest).variables[0], expected.variables[0])) << "the same plan";
  rest.plan.update_at = program::UpdateAt::kEveryRank;
  rest.plan.ranks = 3;
  EXPECT_LT(largest_difference(train(rest).variables[0], expected.variables[0]), 1e-10);
  rest.plan.library = true;
  EXPECT_LT(largest_difference(train(rest).variables[0], expected.variables[0]), 1e-10);
}

TEST(Runner, AnOwnerHasWhatItGoesOnFromBeforeItAnswers) {
  Job job;
  job.plan.ranks = 2;
  job.plan.owner = spread_over(2);
  job.batches.resize(2);
  const Outcome before = train(job);
  job.first_step = 2;
  job.values = before.variables[0];
  job.state = before.state;
  job.chief_is_ahead = Seconds(0.05);
  const Outcome after = train(job);
  ASSERT_EQ(after.state.size(), before.state.size());
  for (std::size_t i = 0; i < after.state.size(); ++i) {
    EXPECT_TRUE(after.state[i].tensor.equal(before.state[i].tensor)) << after.state[i].name;
  }
}

TEST(Runner, AServingRankHandsItsStateOver) {
  Job job;
  job.plan.ranks = 1;
  job.plan.serves = true;
  job.plan.owner = [](std::uint32_t) { return 1U; };
  const Outcome outcome = train(job);
  ASSERT_EQ(outcome.state.size(), 4);
  EXPECT_EQ(outcome.state[0].name, "b1.momentum_buffer");
}

TEST(Runner, LambsNormsSpanTheSlicesOfAVariable) {
  Job alone;
  ir::UpdateRule lamb = ir::default_rule(ir::Rule::kLamb);
  lamb.options["lr"] = 0.05;
  alone.graph = testing::two_layers(lamb);
  const Values expected = train(alone).variables[0];
  for (const auto update_at : {program::UpdateAt::kOwner, program::UpdateAt::kEveryRank}) {
    Job job = alone;
    job.plan.ranks = 3;
    job.plan.owner = spread_over(3);
    job.plan.update_at = update_at;
    EXPECT_LT(largest_difference(train(job).variables[2], expected), 1e-10);
  }
}

TEST(Runner, ATraceShowsWhatTheRankDid) {
  Job job;
  job.plan.ranks = 2;
  job.plan.owner = spread_over(2);
  job.trace = true;
  const Outcome outcome = train(job);
  std::map<program::Activity, std::size_t> rows;
  Seconds last{-1};
  for (const program::TraceRow& row : outcome.traces[1].rows) {
    ++rows[row.activity];
    EXPECT_GE(row.start.value, last.value);
    EXPECT_GE(row.end.value, row.start.value);
    EXPECT_EQ(row.rank, program::Rank(1));
    last = row.start;
  }
  EXPECT_EQ(rows[program::Activity::kCompute], job.graph->ops.size() * job.batches.size());
  EXPECT_EQ(rows[program::Activity::kInstall], 4 * job.batches.size());
  EXPECT_GT(rows[program::Activity::kMerge], 0);
}

TEST(Runner, GradientsAreClippedByTheirJointNorm) {
  for (const bool library : {false, true}) {
    for (const auto update_at : {program::UpdateAt::kOwner, program::UpdateAt::kEveryRank}) {
      for (std::uint32_t ranks : {1, 2, 3}) {
        Job job;
        job.graph->clips = {{0.05, {ir::VariableId(0), ir::VariableId(1), ir::VariableId(2)}}};
        job.plan.ranks = ranks;
        job.plan.library = library;
        job.plan.update_at = update_at;
        job.plan.owner = spread_over(ranks);
        expect_as_libtorch(job);
      }
    }
  }
}

TEST(Runner, AServingOwnerLearnsTheNormOfWhatItDoesNotOwn) {
  Job job;
  job.graph->clips = {{0.05, {ir::VariableId(0), ir::VariableId(3)}}};
  job.plan.ranks = 2;
  job.plan.serves = true;
  job.plan.owner = spread_over(3);
  expect_as_libtorch(job);
}

TEST(Runner, VariablesThatTheStepDoesNotUseKeepTheirValueAndWaitForNobody) {
  Job job;
  job.graph = testing::two_layers(sgd(), /*unused=*/true);
  job.plan.ranks = 2;
  const Outcome outcome = train(job);
  const Values before = testing::initial_values(*job.graph, 7);
  EXPECT_TRUE(torch::equal(outcome.variables[0][2], before[2]));
  EXPECT_FALSE(torch::equal(outcome.variables[0][0], before[0]));
}

TEST(Runner, TwoRunsGiveTheSameBitsWhereverTheOwnersSit) {
  Job job;
  job.plan.ranks = 3;
  job.batches = {7, 7, 7, 7, 7, 7};
  const Values first = train(job).variables[0];
  EXPECT_TRUE(same_bits(train(job).variables[0], first));
  job.plan.owner = spread_over(3);
  EXPECT_TRUE(same_bits(train(job).variables[0], first));
  job.plan.slice_elements = 5;
  EXPECT_TRUE(same_bits(train(job).variables[0], first));
  job.plan.update_at = program::UpdateAt::kEveryRank;
  EXPECT_TRUE(same_bits(train(job).variables[0], first));
}

TEST(Runner, DelaysAndDuplicatesChangeNothing) {
  Job job;
  job.plan.ranks = 3;
  job.plan.owner = spread_over(3);
  const Values expected = train(job).variables[0];
  job.fate = [](comm::RankNumber to, const comm::Frame& frame) -> std::vector<Seconds> {
    const std::uint32_t mixed = (frame.header.id * 7 + to * 3 + frame.header.from) % 5;
    const Seconds late(1e-3 * mixed);
    return mixed == 1 ? std::vector<Seconds>{late, late * 2.0} : std::vector<Seconds>{late};
  };
  EXPECT_TRUE(same_bits(train(job).variables[0], expected));
}

TEST(Runner, AKilledRankIsNamedWithinThreeHeartbeats) {
  Job job;
  job.plan.ranks = 3;
  job.plan.owner = spread_over(3);
  const auto program = testing::program_of(job.graph, job.plan);
  comm::InProcessHub hub(3);
  const SteadyClock clock;
  std::vector<std::unique_ptr<comm::Transport>> transports;
  std::vector<std::unique_ptr<Runner>> runners;
  RunnerOptions options;
  options.exchange.heartbeat = Seconds(0.1);
  options.exchange.silence_limit = Seconds(0.3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    transports.push_back(hub.connect(rank));
    runners.push_back(std::make_unique<Runner>(
        program, program::Rank(rank),
        capture::Bindings{testing::initial_values(*job.graph, 7), {}, {}},
        RunnerConnections{transports.back().get(), nullptr, &clock}, options));
  }
  std::vector<std::string> messages(3);
  std::vector<Seconds> ended(3);
  Seconds killed;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        for (std::uint64_t step = 0; step < 1000; ++step) {
          if (rank == 1 && step == 3) {
            killed = clock.now();
            hub.kill(1);
            return;
          }
          runners[rank]->step(testing::rows_of(testing::random_batch(6, step), rank, 3));
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
        messages[rank] = error.what();
        ended[rank] = clock.now();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::uint32_t rank : {0, 2}) {
    EXPECT_NE(messages[rank].find("rank 1"), std::string::npos) << messages[rank];
    EXPECT_LT((ended[rank] - killed).value, 3 * 0.1 + 0.3);
    EXPECT_THROW(runners[rank]->step(testing::random_batch(2, 0)), Error);
  }
}

// What `job` says when it stops.
std::string complaint_of(const Job& job) {
  try {
    train(job);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Runner, ALossThatIsNotFiniteIsNamedBeforeAnythingLeavesTheRank) {
  Job job;
  job.plan.ranks = 1;
  job.values = testing::initial_values(*job.graph, 1);
  job.values[1][2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(complaint_of(job).find("variable 'b1'"), std::string::npos) << complaint_of(job);
  // 1e200 squared overflows in the loss, not before.
  job.values = testing::initial_values(*job.graph, 1);
  job.values[3][0] = 1e200;
  const std::string overflow = complaint_of(job);
  EXPECT_NE(overflow.find("step 0: the loss of rank 0 is inf"), std::string::npos) << overflow;
  EXPECT_NE(overflow.find("first in aten::"), std::string::npos) << overflow;
}

TEST(Runner, AnUpdateThatIsNotFiniteIsNoticedAtTheNextStepAtTheLatest) {
  Job job;
  job.plan.ranks = 2;
  ir::UpdateRule huge = sgd();
  huge.options["lr"] = 1e300;
  job.graph = testing::two_layers(huge);
  const std::string overflow = complaint_of(job);
  EXPECT_NE(overflow.find("step 1: the loss of rank"), std::string::npos) << overflow;
  job.on_nonfinite = OnNonFinite::kIgnore;
  EXPECT_EQ(complaint_of(job), "");
}

TEST(Runner, ABatchThatDoesNotFitIsRefusedAndThePeersAreTold) {
  Job job;
  job.plan.ranks = 2;
  const auto program = testing::program_of(job.graph, job.plan);
  comm::InProcessHub hub(2);
  const SteadyClock clock;
  std::thread other([&] {
    const auto transport = hub.connect(1);
    Runner runner(program, program::Rank(1),
                  capture::Bindings{testing::initial_values(*job.graph, 7), {}, {}},
                  {transport.get(), nullptr, &clock}, {});
    EXPECT_THROW(
        {
          for (int step = 0; step < 10; ++step) runner.step(testing::random_batch(2, 0));
        },
        Error);
  });
  const auto transport = hub.connect(0);
  Runner runner(program, program::Rank(0),
                capture::Bindings{testing::initial_values(*job.graph, 7), {}, {}},
                {transport.get(), nullptr, &clock}, {});
  EXPECT_THROW(runner.step({torch::zeros({2, 4}, torch::kFloat64), torch::zeros({2, 3})}), Error);
  other.join();
}

}  // namespace
}  // namespace autodist::exec
