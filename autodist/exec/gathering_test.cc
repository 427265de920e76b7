#include "autodist/exec/gathering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "autodist/base/error.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/exec/testing/state_cases.h"

namespace autodist::exec {
namespace {

using testing::expect_refused;
using testing::kBias;
using testing::kWide;

std::shared_ptr<const program::Program> job_with(ir::Rule rule, const program::Order& order) {
  return testing::owned_in_turns(rule, {program::Dense{}, order});
}

const torch::Tensor* find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  for (const NamedTensor& each : tensors) {
    if (each.name == name) return &each.tensor;
  }
  return nullptr;
}

// Runs what each of the two ranks does on a thread of its own, for calls that wait for the other.
template <typename Do>
void both(Do act) {
  std::thread other([&] { act(1); });
  act(0);
  other.join();
}

class GatheringTest : public ::testing::TestWithParam<program::UpdateAt> {
 protected:
  [[nodiscard]] static std::shared_ptr<const program::Program> adam() {
    return job_with(ir::Rule::kAdam, program::Versions{0, GetParam()});
  }
};

TEST_P(GatheringTest, TheChiefHasTheStateOfAllOwnersInTheShapeOfTheVariables) {
  testing::JobEngines job(adam());
  job.step(0);
  const std::vector<NamedTensor> state = job.at(0).gathering().gather_state(1).get();
  const torch::Tensor* average = find(state, "w1.exp_avg");
  ASSERT_NE(average, nullptr);
  EXPECT_EQ(average->sizes(), job.tensor(0, kWide).sizes());
  EXPECT_TRUE(torch::allclose(*average, torch::full_like(*average, 0.1 * 1.5)))
      << "(1 - beta1) times the mean of 1 and 2";
}

TEST_P(GatheringTest, TheStateIsThatBetweenTwoStepsWhereTheNextOneDoesNotWaitForIt) {
  testing::JobEngines undisturbed(adam());
  undisturbed.step(0);
  const std::vector<NamedTensor> expected = undisturbed.at(0).gathering().gather_state(1).get();
  testing::JobEngines job(adam());
  job.step(0);
  LaterTensors later;
  {
    const MutexLock held(job.at(1).signal());  // so that its merging thread does not answer
    later = job.at(0).gathering().gather_state(1);
    if (GetParam() == program::UpdateAt::kOwner) {
      EXPECT_NE(later.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    }
  }
  job.step(1);
  job.step(2);
  const std::vector<NamedTensor>& state = later.get();
  ASSERT_EQ(state.size(), expected.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].name, expected[i].name);
    EXPECT_TRUE(state[i].tensor.equal(expected[i].tensor)) << state[i].name;
  }
  EXPECT_FALSE(job.at(0).gathering().gather_state(3).get()[0].tensor.equal(state[0].tensor));
}

TEST_P(GatheringTest, TheStateIsGatheredTwiceBetweenTwoSteps) {
  testing::JobEngines job(adam());
  job.step(0);
  const auto first = job.at(0).gathering().gather_state(1).get();
  const auto second = job.at(0).gathering().gather_state(1).get();
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(second[i].tensor.equal(first[i].tensor)) << first[i].name;
  }
}

TEST(Gathering, PiecesOfOneThatFailedAreNotTheNextOnes) {
  const auto adam = job_with(ir::Rule::kAdam, program::Versions{0, program::UpdateAt::kOwner});
  testing::JobEngines undisturbed(adam);
  undisturbed.step(0);
  undisturbed.step(1);
  const auto expected = undisturbed.at(0).gathering().gather_state(2).get();
  RunnerOptions options;
  options.wait_limit = Seconds{1};
  testing::JobEngines job(adam, options);
  job.step(0);
  {
    const MutexLock held(job.at(1).signal());
    EXPECT_THROW(job.at(0).gathering().gather_state(1).get(), Error);
  }
  job.step(1);
  const auto state = job.at(0).gathering().gather_state(2).get();
  ASSERT_EQ(state.size(), expected.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_TRUE(state[i].tensor.equal(expected[i].tensor)) << state[i].name;
  }
}

TEST(Gathering, AnOwnerThatHasUpdatedAgainDoesNotGiveThatStateForTheOneAskedFor) {
  testing::JobEngines job(
      job_with(ir::Rule::kAdam, program::Versions{0, program::UpdateAt::kOwner}));
  job.step(0);
  job.step(1);
  expect_refused([&] { job.at(0).gathering().gather_state(1).get(); },
                 "of step 1 when it had updated it again");
  EXPECT_FALSE(job.at(0).gathering().gather_state(2).get().empty());
}

TEST_P(GatheringTest, AJobThatLoadsTheStateGoesOnAsTheOneThatHadIt) {
  testing::JobEngines first(adam());
  first.step(0);
  const std::vector<NamedTensor> state = first.at(0).gathering().gather_state(1).get();
  RunnerOptions options;
  options.first_step = 1;
  testing::JobEngines second(adam(), options, nullptr, {state, {}});
  for (const std::uint32_t rank : {0U, 1U}) {
    for (std::size_t i = 0; i < 4; ++i) {
      second.tensor(rank, ir::VariableId(i)).copy_(first.tensor(0, ir::VariableId(i)));
    }
    second.at(rank).driver().reload(
        {ir::VariableId(0), ir::VariableId(1), ir::VariableId(2), ir::VariableId(3)}, 1);
  }
  first.step(1);
  second.step(1);
  EXPECT_TRUE(second.tensor(1, kWide).equal(first.tensor(0, kWide)));
  EXPECT_TRUE(second.tensor(0, kBias).equal(first.tensor(1, kBias)));
}

TEST_P(GatheringTest, AStateThatIsMissingIsNamed) {
  testing::JobEngines job(adam());
  job.step(0);
  std::vector<NamedTensor> state = job.at(0).gathering().gather_state(1).get();
  state.erase(std::find_if(state.begin(), state.end(),
                           [](const NamedTensor& each) { return each.name == "b2.exp_avg_sq"; }));
  expect_refused(
      [&] {
        testing::JobEngines(adam(), {}, nullptr, {state, {}});
      },
      "optimizer state 'b2.exp_avg_sq' is missing");
}

INSTANTIATE_TEST_SUITE_P(UpdateAt, GatheringTest,
                         ::testing::Values(program::UpdateAt::kOwner,
                                           program::UpdateAt::kEveryRank),
                         testing::name_of_update);

// Every owner applies contributions as they come, so copies differ until they are pulled.
TEST(Gathering, CopiesOfAsynchronousVariablesBecomeThoseOfTheirOwners) {
  testing::JobEngines job(job_with(ir::Rule::kSgd, program::Asynchronous{}));
  const torch::Tensor before = job.tensor(0, kBias).clone();
  for (const std::uint32_t rank : {0U, 1U}) {
    for (std::size_t i = 0; i < 4; ++i) {
      const ir::VariableId variable(i);
      job.at(rank).driver().contribute(variable, job.gradient(variable, rank + 1.0), 0, 1);
      job.at(rank).driver().release(variable);
    }
  }
  both([&](std::uint32_t rank) {
    for (std::size_t i = 0; i < 4; ++i) {
      job.at(rank).driver().await_settled(ir::VariableId(i), 1);
    }
    job.at(rank).gathering().pull(1);
  });
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(job.tensor(0, ir::VariableId(i)).equal(job.tensor(1, ir::VariableId(i)))) << i;
  }
  EXPECT_FALSE(job.tensor(0, kBias).equal(before));
}

TEST(Gathering, TensorsOfAllRanksComeToTheChiefAlone) {
  testing::JobEngines job(job_with(ir::Rule::kSgd, program::Versions{}));
  both([&](std::uint32_t rank) {
    const auto all = job.at(rank).gathering().gather_tensors(
        Topic::kGathering, 1, {{"mean", torch::full({2}, rank + 0.5)}});
    ASSERT_EQ(all.size(), rank == 0 ? 2U : 0U);
    if (rank != 0) return;
    EXPECT_TRUE(all.at(1).front().tensor.equal(torch::full({2}, 1.5)));
  });
}

}  // namespace
}  // namespace autodist::exec
