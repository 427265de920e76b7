#include "autodist/exec/state_bytes.h"

#include <gtest/gtest.h>

#include "autodist/exec/testing/small_steps.h"
#include "autodist/ir/optimizer.h"

namespace autodist::exec {
namespace {

using program::State;
using testing::kWide;
using Names = std::vector<std::string>;

constexpr std::int64_t kParameters = 57 * 8;  // of two_layers(), in f64

program::Move four_elements(State state) {
  return {state, kWide, program::Rank(0), program::Rank(1), {{2, 5}, {15, 16}}};
}

TEST(StateBytes, OfAMoveAreItsElementsInEveryArray) {
  const auto graph = testing::two_layers(ir::default_rule(ir::Rule::kAdam));
  EXPECT_EQ(arrays_of(State::kRule, kWide, *graph, nullptr), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(bytes_of(four_elements(State::kRule), *graph, nullptr), Bytes(2 * 4 * 8));
  EXPECT_EQ(arrays_of(State::kOwed, kWide, *graph, nullptr), (Names{"owed"}));
  for (const State state : {State::kParameters, State::kOwed, State::kOwedAverage}) {
    EXPECT_EQ(bytes_of(four_elements(state), *graph, nullptr), Bytes(4 * 8)) << name_of(state);
  }
}

TEST(StateBytes, AreNoneWhereARuleKeepsNothing) {
  const auto graph = testing::two_layers(ir::default_rule(ir::Rule::kSgd));
  EXPECT_EQ(bytes_of(four_elements(State::kRule), *graph, nullptr), Bytes(0));
}

TEST(StateBytes, OfAUsersRuleAreAsManyArraysAsItDeclares) {
  UserRules rules;
  rules.add("mine", 3, [](const UserUpdate&) {});
  ir::UpdateRule rule;
  rule.rule = ir::Rule::kUser;
  rule.user_rule = "mine";
  const auto graph = testing::two_layers(rule);
  EXPECT_EQ(bytes_of(four_elements(State::kRule), *graph, &rules), Bytes(3 * 4 * 8));
}

TEST(StateBytes, OfHalvesAreFloatsWhereARuleKeepsThem) {
  const auto graph = testing::two_layers(ir::default_rule(ir::Rule::kAdam));
  graph->values[graph->variable(kWide).value.value].type.dtype = DType::kFloat16;
  EXPECT_EQ(dtype_of_state(State::kRule, kWide, *graph), DType::kFloat32);
  EXPECT_EQ(dtype_of_state(State::kParameters, kWide, *graph), DType::kFloat16);
  EXPECT_EQ(bytes_of(four_elements(State::kRule), *graph, nullptr), Bytes(2 * 4 * 4));
}

TEST(StateBytes, OfAllCountParametersAndRulesOnceWhoeverHasThem) {
  for (const auto at : {program::UpdateAt::kOwner, program::UpdateAt::kEveryRank}) {
    const auto program =
        testing::owned_in_turns(ir::Rule::kAdam, {program::Dense{}, program::Versions{0, at}});
    EXPECT_EQ(bytes_of_state(*program, nullptr), Bytes(3 * kParameters));
  }
}

TEST(StateBytes, OfAllCountWhatCompressionOwesForEachRankThatOwesIt) {
  const program::Compression half{program::Codec::kFp16, /*error_feedback=*/true};
  const auto program = testing::owned_in_turns(
      ir::Rule::kSgd, {program::Dense{program::Route::kDirect, half, half},
                       program::Versions{0, program::UpdateAt::kEveryRank}});
  EXPECT_EQ(bytes_of_state(*program, nullptr), Bytes((1 + 2 + 1) * kParameters))
      << "parameters, what two ranks owe of gradients, and owners of averages";
}

}  // namespace
}  // namespace autodist::exec
