// What the protocol answers without an order of events; for those see walk_test.cc.

#include "autodist/protocol/rank.h"

#include <gtest/gtest.h>

#include <memory>

#include "autodist/base/check.h"
#include "autodist/protocol/testing/small_program.h"

namespace autodist::protocol {
namespace {

TEST(RankProtocol, WhatIsNotTrainedOrIsAnotherStagesIsAlwaysOpen) {
  program::Program program = small_program(2, 2, {owned_by(0), owned_by(0, {}, {1})});
  auto graph = std::make_shared<ir::Graph>(*program.graph);
  graph->variables[1].gradient.reset();
  program.graph = graph;
  program.stages = 2;
  program.slices[0].members = {Rank(0)};
  const Job job(program);
  const RankProtocol rank(job, Rank(1), kFirst);
  EXPECT_TRUE(rank.is_open(VariableId(0), kFirst + 9)) << "the first stage's";
  EXPECT_TRUE(rank.is_open(VariableId(1), kFirst + 9)) << "not trained";
  EXPECT_FALSE(RankProtocol(job, Rank(0), kFirst).is_open(VariableId(0), kFirst + 1));
}

TEST(RankProtocol, ExpectsResultsOfItsOwnSlicesAndOfTheStepsThatItHasRoomFor) {
  const program::Slice stale = exchanged(program::Dense{}, program::Versions{1});
  const program::Program program = small_program(3, 2, {owned_by(2, stale)});
  const Job job(program);
  const RankProtocol member(job, Rank(0), kFirst);
  EXPECT_FALSE(member.expects(SliceId(0), kFirst - 1));
  EXPECT_TRUE(member.expects(SliceId(0), kFirst));
  EXPECT_TRUE(member.expects(SliceId(0), kFirst + 1));
  EXPECT_FALSE(member.expects(SliceId(0), kFirst + 2));
  EXPECT_FALSE(RankProtocol(job, Rank(2), kFirst).expects(SliceId(0), kFirst)) << "it only serves";
}

TEST(RankProtocol, ParametersGoInAsTheyComeWhereNobodyReadsTheOldOnes) {
  const program::Slice asynchronous = exchanged(program::Dense{}, program::Asynchronous{});
  const program::Program program = small_program(
      2, 2, {owned_by(0), owned_by(0, every_rank(), {1}), owned_by(0, asynchronous, {2})});
  const Job job(program);
  RankProtocol rank(job, Rank(1), kFirst);
  EXPECT_TRUE(rank.may_go_in(SliceId(0), kFirst));
  EXPECT_FALSE(rank.may_go_in(SliceId(0), kFirst + 1)) << "not the next version";
  EXPECT_FALSE(rank.may_go_in(SliceId(1), kFirst)) << "a gradient";
  EXPECT_FALSE(rank.may_go_in(SliceId(2), kFirst)) << "it has no versions";
  Effects effects;
  rank.on(Held{VariableId(0)}, effects);
  EXPECT_FALSE(rank.may_go_in(SliceId(0), kFirst)) << "the step reads it";
}

TEST(RankProtocol, RefusesPartsOfANormThatAreTooManyOrOfAStepOutOfReach) {
  const program::Program program = small_program(2, 2, {owned_by(0), owned_by(1, {}, {1})}, true);
  const Job job(program);
  RankProtocol rank(job, Rank(0), kFirst);
  Effects effects;
  rank.on(SumsArrived{SliceId(1), kFirst, false}, effects);
  EXPECT_THROW(rank.on(SumsArrived{SliceId(1), kFirst + 2, false}, effects), InternalError);
  rank.on(SumsArrived{SliceId(0), kFirst, false}, effects);
  EXPECT_THROW(rank.on(SumsArrived{SliceId(1), kFirst, false}, effects), InternalError);
}

}  // namespace
}  // namespace autodist::protocol
