// What the protocol and its tables answer without an order of events; for those see walk_test.cc.

#include "autodist/protocol/rank.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/program/route.h"
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

TEST(RankProtocol, ASliceIsCompleteWithTheLastOfItsVariablesInEveryStep) {
  const program::Program program = small_program(2, 2, {owned_by(0, {}, {0, 1})});
  const Job job(program);
  RankProtocol rank(job, Rank(0), kFirst);
  const auto completed_by = [&](std::uint32_t variable) {
    std::vector<SliceId> slices;
    rank.gradient_complete(VariableId(variable), [&](SliceId each) { slices.push_back(each); });
    return slices;
  };
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(completed_by(1).empty());
    EXPECT_EQ(completed_by(0), std::vector<SliceId>{SliceId(0)});
  }
}

TEST(RankProtocol, GivesRowsAtOnceWhereTheStepMayUseAnEarlierVersion) {
  const program::Slice stale =
      exchanged(program::Rows{program::RowTransfer::kFetch}, program::Versions{1});
  const program::Program program = small_program(2, 2, {owned_by(0, stale)});
  const Job job(program);
  RankProtocol owner(job, Rank(0), kFirst);
  Effects effects;
  owner.on(AskArrived{Rank(1), SliceId(0), kFirst + 1}, effects);
  ASSERT_EQ(effects.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<GiveRows>(effects[0]));
  owner.on(AskArrived{Rank(1), SliceId(0), kFirst + 2}, effects);
  EXPECT_EQ(effects.size(), 1U) << "its step needs a version that is not there yet";
}

// A message less for everyone who waits; the others learn of the version as they always do.
TEST(RankProtocol, SendsTheResultWithRowsThatWereAskedForBefore) {
  const program::Slice rows = exchanged(program::Rows{program::RowTransfer::kFetch});
  const program::Program program = small_program(4, 3, {owned_by(3, rows)});
  const Job job(program);
  RankProtocol owner(job, Rank(3), kFirst);
  Effects effects;
  owner.on(AskArrived{Rank(1), SliceId(0), kFirst + 1}, effects);
  for (const std::uint32_t member : {0, 1, 2}) {
    owner.on(ContributionArrived{Rank(member), SliceId(0), kFirst}, effects);
  }
  effects.shrink_to(0);
  owner.on(Merged{SliceId(0)}, effects);
  ASSERT_EQ(effects.size(), 3U);
  EXPECT_EQ(std::get<Answer>(effects[0]).to, Rank(0));
  EXPECT_EQ(std::get<Answer>(effects[1]).to, Rank(2));
  const auto given = std::get<GiveRows>(effects[2]);
  EXPECT_EQ(given.to, Rank(1));
  owner.on(RowsGiven{given.to, given.slice, given.step, given.with_result}, effects);
  EXPECT_TRUE(std::get<SendRows>(effects[3]).with_result);
  owner.on(AskArrived{Rank(0), SliceId(0), kFirst + 1}, effects);
  EXPECT_FALSE(std::get<GiveRows>(effects[4]).with_result) << "it has been told";
}

TEST(Job, APartOfANormComesFromEverySliceAndFromEveryVariableThatNoneCarries) {
  const program::Program program =
      small_program(2, 2, {owned_by(0), owned_by(1)}, /*clipped=*/true, ir::Rule::kSgd,
                    /*scaled=*/true, /*one_whole=*/true);
  const Job job(program);
  EXPECT_EQ(job.norms.parts, (std::vector<std::uint32_t>{3, 2})) << "the clip's and the flags'";
}

TEST(Job, TheFirstRankThatComputesSpeaksToThoseThatServe) {
  program::Program program = small_program(2, 2, {owned_by(0)});
  program.ranks[0].replica.reset();
  EXPECT_EQ(Job(program).first_computing, Rank(1));
}

// Nodes with two ranks each side by side, with another number, and with ranks that alternate.
TEST(Job, RoutesAreThoseOfTheProgramFromEveryOwner) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{1, 1, 2, 2}, {1, 1, 2, 2, 3, 3}, {1, 1, 2}, {1, 2, 1, 2}}) {
    const auto ranks = static_cast<std::uint32_t>(nodes.size());
    for (const program::Route route : {program::Route::kProxies, program::Route::kNodes,
                                       program::Route::kTree, program::Route::kRing}) {
      std::vector<SmallSlice> slices;
      const program::Slice rules = exchanged(program::Dense{route});
      for (std::uint32_t owner = 0; owner < ranks; ++owner) {
        slices.push_back(owned_by(owner, rules));
      }
      program::Program program = small_program(ranks, ranks, slices);
      for (std::uint32_t r = 0; r < ranks; ++r) {
        program.ranks[r].node = std::to_string(nodes[r]);
      }
      const Job job(program);
      for (std::uint32_t owner = 0; owner < ranks; ++owner) {
        const Job::Slice& slice = job.slices[owner];
        const auto in_job = [&](std::uint32_t in_table) {
          return Rank(job.routes.rank_of(slice.route, in_table));
        };
        for (std::uint32_t r = 0; r < ranks; ++r) {
          const program::RouteStop expected = stop_of(program, program.slices[owner], Rank(r));
          const TableStop& stop = job.stop(slice, Rank(r));
          EXPECT_EQ(stop.combines, expected.combines.size());
          EXPECT_EQ(std::vector<Rank>{in_job(stop.contributes)}, expected.contributes);
          ASSERT_EQ(stop.onward != kNone, expected.onward.has_value());
          EXPECT_EQ(in_job(stop.onward), expected.onward.value_or(in_job(kNone)));
          std::vector<Rank> returns;
          for (const std::uint32_t to : stop.returns) returns.push_back(in_job(to));
          EXPECT_EQ(returns, expected.returns);
          EXPECT_EQ(stop.installs, expected.installs);
        }
      }
    }
  }
}

TEST(Job, OwnersShareATableWhereTheirRoutesAreAlikeAndTurned) {
  const auto tables = [](program::Route route) {
    const program::Slice rules = exchanged(program::Dense{route});
    const program::Program program =
        small_program(4, 4, {owned_by(0, rules), owned_by(1, rules), owned_by(2, rules)});
    const Job job(program);
    return std::vector<bool>{job.slices[0].route.table == job.slices[1].route.table,
                             job.slices[0].route.table == job.slices[2].route.table};
  };
  EXPECT_EQ(tables(program::Route::kRing), (std::vector<bool>{true, true}));
  EXPECT_EQ(tables(program::Route::kNodes), (std::vector<bool>{false, true})) << "by node";
}

}  // namespace
}  // namespace autodist::protocol
