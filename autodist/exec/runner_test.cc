#include "autodist/exec/runner.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/testing/in_process.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/exec/testing/trained_job.h"

namespace autodist::exec {
namespace {

using testing::Job;
using testing::largest_difference;
using testing::Outcome;
using testing::Plan;
using testing::same_bits;
using testing::sgd;
using testing::spread_over;
using testing::Values;

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

TEST(Runner, AKilledRankIsNamedToTheOthers) {
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
  options.exchange.silence_limit = Seconds(1);
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
    EXPECT_LT(ended[rank] - killed, options.wait_limit * 0.1) << "rank " << rank;
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
