#include "autodist/exec/held_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/exec/testing/state_cases.h"

namespace autodist::exec {
namespace {

using program::State;
using testing::expect_refused;
using testing::kWide;
using Numbers = std::vector<double>;

// Of kWide's slices rank 0 has the first, the third and the last.
const std::vector<program::Stretch> kOwnedByFirst{{0, 7}, {14, 21}, {28, 30}};

std::shared_ptr<const program::Program> job_with(const program::Slices& exchange,
                                                 std::uint32_t ranks = 2) {
  return testing::owned_in_turns(ir::Rule::kAdam, exchange, ranks);
}

program::Slices updated_at(program::UpdateAt at) {
  return {program::Dense{}, program::Versions{0, at}};
}

// Of each variable both of Adam's states, numbered through: w1.exp_avg has 0 to 29, w1.exp_avg_sq
// 30 to 59, and so on.
std::vector<NamedTensor> numbered_rules(const program::Program& program) {
  std::vector<NamedTensor> rules;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const ir::VariableId variable(i);
    const std::int64_t count = element_count(*program.graph, variable);
    for (const char* array : {".exp_avg", ".exp_avg_sq"}) {
      const torch::Tensor numbers = torch::arange(next, next + count, torch::kFloat64);
      rules.push_back({program.graph->variable(variable).name + array,
                       numbers.view(shape_of(*program.graph, variable))});
      next += count;
    }
  }
  return rules;
}

program::Move move_of(State state, std::vector<program::Stretch> stretches) {
  return {state, kWide, program::Rank(0), program::Rank(1), std::move(stretches)};
}

Numbers numbers_of(const comm::Payload& payload) {
  Numbers numbers(payload.size / sizeof(double));
  std::memcpy(numbers.data(), payload.data, payload.size);
  return numbers;
}

Numbers numbers_of(const torch::Tensor& tensor, const program::Stretch& stretch) {
  const auto* data = static_cast<const double*>(tensor.data_ptr());
  return {data + stretch.begin, data + stretch.end};
}

class HeldRules : public ::testing::TestWithParam<program::UpdateAt> {
 protected:
  const std::shared_ptr<const program::Program> program_ = job_with(updated_at(GetParam()));
  const std::vector<NamedTensor> loaded_ = numbered_rules(*program_);
  testing::JobEngines job_{program_, {}, nullptr, {loaded_, {}}};
};

TEST_P(HeldRules, OfAllRanksMakeTheWholeStateThatWasLoaded) {
  StateTensors all;
  job_.at(0).held().add_merged_rules(all);
  for (const program::Move& move :
       program::gathering(*program_, State::kRule, program::Rank(0)).moves) {
    job_.at(0).held().put(move, job_.at(move.from.value).held().packed(move), all);
  }
  ASSERT_EQ(all.size(), loaded_.size());
  for (const NamedTensor& each : loaded_) {
    EXPECT_TRUE(all.at(each.name).equal(each.tensor)) << each.name;
  }
}

TEST_P(HeldRules, AreMovedOneArrayAfterTheOther) {
  const program::Move move = move_of(State::kRule, {{2, 5}, {15, 16}});
  const comm::Payload payload = job_.at(0).held().packed(move);
  EXPECT_EQ(numbers_of(payload), (Numbers{2, 3, 4, 15, 32, 33, 34, 45}));
  EXPECT_EQ(Bytes(static_cast<std::int64_t>(payload.size)),
            bytes_of(move, *program_->graph, nullptr));
}

TEST_P(HeldRules, AreAllChangedByTheMergingThreadWhereSlicesCarryThem) {
  StateTensors others;
  job_.at(0).held().add_other_rules(others);
  EXPECT_TRUE(others.empty());
}

INSTANTIATE_TEST_SUITE_P(UpdateAt, HeldRules,
                         ::testing::Values(program::UpdateAt::kOwner,
                                           program::UpdateAt::kEveryRank),
                         testing::name_of_update);

TEST(HeldState, WhereEveryRankUpdatesAMoveReachesOverSlices) {
  const auto program = job_with(updated_at(program::UpdateAt::kEveryRank));
  testing::JobEngines job(program, {}, nullptr, {numbered_rules(*program), {}});
  EXPECT_EQ(numbers_of(job.at(1).held().packed(move_of(State::kRule, {{6, 8}}))),
            (Numbers{6, 7, 36, 37}));
}

TEST(HeldState, ElementsOfAnotherOwnerAreNotHere) {
  testing::JobEngines job(job_with(updated_at(program::UpdateAt::kOwner)));
  EXPECT_THROW((void)job.at(0).held().packed(move_of(State::kRule, {{6, 8}})), InternalError);
}

TEST(HeldState, WhatComesGoesWhereItBelongsAndNowhereElse) {
  const auto program = job_with(updated_at(program::UpdateAt::kOwner));
  testing::JobEngines job(program, {}, nullptr, {numbered_rules(*program), {}});
  const program::Move move = move_of(State::kRule, {{14, 16}});
  StateTensors tensors{{"w1.exp_avg", torch::zeros({6, 5}, torch::kFloat64)}};
  job.at(1).held().put(move, job.at(0).held().packed(move), tensors);
  EXPECT_EQ(numbers_of(tensors.at("w1.exp_avg"), {13, 17}), (Numbers{0, 14, 15, 0}));
  EXPECT_EQ(tensors.at("w1.exp_avg").sum().item<double>(), 29);
  EXPECT_EQ(numbers_of(tensors.at("w1.exp_avg_sq"), {14, 16}), (Numbers{44, 45}));
}

TEST(HeldState, BytesOfAnotherSizeAreADefect) {
  testing::JobEngines job(job_with(updated_at(program::UpdateAt::kOwner)));
  StateTensors tensors;
  const comm::Payload payload = job.at(0).held().packed(move_of(State::kRule, {{0, 3}}));
  EXPECT_THROW(job.at(1).held().put(move_of(State::kRule, {{0, 2}}), payload, tensors),
               InternalError);
}

TEST(HeldState, RulesOfWhatNoSliceCarriesChangeInTheStep) {
  const auto program = job_with(updated_at(program::UpdateAt::kOwner), /*ranks=*/1);
  const std::vector<NamedTensor> loaded = numbered_rules(*program);
  testing::JobEngines job(program, {}, nullptr, {loaded, {}});
  StateTensors merged;
  job.at(0).held().add_merged_rules(merged);
  EXPECT_TRUE(merged.empty());
  StateTensors others;
  job.at(0).held().add_other_rules(others);
  ASSERT_EQ(others.size(), loaded.size());
  for (const NamedTensor& each : loaded) {
    EXPECT_TRUE(others.at(each.name).equal(each.tensor)) << each.name;
  }
  EXPECT_EQ(numbers_of(job.at(0).held().packed(move_of(State::kRule, {{28, 30}}))),
            (Numbers{28, 29, 58, 59}));
}

TEST(HeldState, ARuleOfAnotherShapeOrTypeIsRefused) {
  const auto program = job_with(updated_at(program::UpdateAt::kOwner));
  testing::JobEngines job(program);
  std::vector<NamedTensor> flat = numbered_rules(*program);
  flat[1].tensor = flat[1].tensor.view({-1});
  expect_refused([&] { job.at(0).held().load_rules(flat); },
                 "'w1.exp_avg_sq' is f64 [30], expected f64 [6, 5]");
  std::vector<NamedTensor> narrow = numbered_rules(*program);
  narrow[0].tensor = narrow[0].tensor.to(torch::kFloat32);
  expect_refused([&] { job.at(0).held().load_rules(narrow); }, "'w1.exp_avg' is");
}

TEST(HeldState, ParametersAreTheNewestAtEveryRankWhereThereAreVersions) {
  testing::JobEngines job(job_with(updated_at(program::UpdateAt::kOwner)));
  EXPECT_EQ(numbers_of(job.at(1).held().packed(move_of(State::kParameters, {{3, 9}}))),
            numbers_of(job.tensor(1, kWide), {3, 9}));
}

TEST(HeldState, ParametersAreTheOwnersWhereContributionsAreAppliedAsTheyCome) {
  testing::JobEngines job(job_with({program::Dense{}, program::Asynchronous{}}));
  for (const program::Stretch& each : kOwnedByFirst) {
    EXPECT_EQ(numbers_of(job.at(0).held().packed(move_of(State::kParameters, {each}))),
              numbers_of(job.tensor(0, kWide), each));
  }
  EXPECT_THROW((void)job.at(0).held().packed(move_of(State::kParameters, {{7, 8}})), InternalError);
}

TEST(HeldState, ParametersThatCameGoIntoTheCopiesOfTheRankThatTheyCameTo) {
  testing::JobEngines job(job_with({program::Dense{}, program::Asynchronous{}}));
  Numbers expected = numbers_of(job.tensor(0, kWide), {0, 30});
  std::fill(expected.begin() + 7, expected.begin() + 14, 9.0);
  program::Move here = move_of(State::kParameters, {{7, 14}});
  std::swap(here.from, here.to);
  const program::Move there = move_of(State::kParameters, {{0, 7}});
  const StateTensors came{{"w1.parameters", torch::full({6, 5}, 9.0, torch::kFloat64)}};
  job.at(0).held().put_parameters(came, {{here, there}, {}});
  EXPECT_EQ(numbers_of(job.tensor(0, kWide), {0, 30}), expected);
}

// Gradients and averages as halves, which every rank updates by.
program::Slices compressed() {
  const program::Compression half{program::Codec::kFp16, /*error_feedback=*/true};
  return {program::Dense{program::Route::kDirect, half, half},
          program::Versions{0, program::UpdateAt::kEveryRank}};
}

TEST(HeldState, OfWhatCompressionOwesEveryRankHasItsOwnAndOwnersThatOfTheirAverages) {
  const torch::Tensor gradients = torch::arange(1, 31, torch::kFloat64).view({6, 5});
  const torch::Tensor averages = gradients + 100;
  testing::JobEngines job(job_with(compressed()), {}, nullptr,
                          {{}, {{"w1.owed", gradients}, {"w1.owed_average", averages}}});
  StateTensors owed;
  job.at(0).held().add_owed(owed);
  EXPECT_TRUE(owed.at("w1.owed").equal(gradients));
  EXPECT_TRUE(owed.at("b1.owed").equal(torch::zeros({6}, torch::kFloat64))) << "it was not named";
  Numbers own(30);
  for (const program::Stretch& each : kOwnedByFirst) {
    for (std::int64_t i = each.begin; i < each.end; ++i) own[i] = 101.0 + static_cast<double>(i);
  }
  EXPECT_EQ(numbers_of(owed.at("w1.owed_average"), {0, 30}), own);
  EXPECT_EQ(owed.count("b1.owed_average"), 0U) << "its slice is rank 1's";
  EXPECT_EQ(numbers_of(job.at(0).held().packed(move_of(State::kOwedAverage, {{14, 16}}))),
            (Numbers{115, 116}));
}

TEST(HeldState, WhatIsOwedInAnotherShapeIsRefused) {
  testing::JobEngines job(job_with(compressed()));
  expect_refused(
      [&] {
        job.at(0).held().load_owed({{"w1.owed", torch::zeros({30}, torch::kFloat64)}});
      },
      "'w1.owed' is");
}

}  // namespace
}  // namespace autodist::exec
