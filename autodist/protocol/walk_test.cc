// Every order in which the events of small jobs can happen, for every way to synchronise.

#include "autodist/protocol/testing/walk.h"

#include <gtest/gtest.h>

#include "autodist/protocol/testing/small_program.h"

namespace autodist::protocol {
namespace {

Walked walked(const program::Program& program, const WalkOptions& options) {
  Walked walked = walk(program, options);
  EXPECT_EQ(walked.broken, "");
  return walked;
}

TEST(EveryOrder, OfTwoOwnersEndsWithTheNewestVersions) {
  const Walked walk = walked(small_program(2, 2, {owned_by(0), owned_by(1)}), {});
  EXPECT_EQ(walk.ends, 1U);
  EXPECT_GT(walk.states, 400U);
}

TEST(EveryOrder, OfAnOwnerThatIsNoMemberEndsToo) {
  EXPECT_EQ(walked(small_program(3, 2, {owned_by(2)}), {}).ends, 1U);
}

TEST(EveryOrder, OfTwoSlicesThatMeetAtOneRankKeepsThemApart) {
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(1), owned_by(1, {}, {1})}), {1}).ends, 1U);
}

TEST(EveryOrder, OfASliceOfTwoVariablesInstallsBoth) {
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, {}, {0, 1})}), {}).ends, 1U);
}

TEST(EveryOrder, WhereEveryRankUpdatesInstallsWhatTheOwnerAveraged) {
  EXPECT_EQ(
      walked(small_program(2, 2, {owned_by(0, every_rank()), owned_by(1, every_rank())}), {}).ends,
      1U);
}

TEST(EveryOrder, OfChainsTreesAndProxiesEndsWithTheNewestVersions) {
  for (const program::Route route :
       {program::Route::kRing, program::Route::kTree, program::Route::kNodes}) {
    EXPECT_EQ(walked(small_program(3, 3, {owned_by(1, by_route(route))}), {}).ends, 1U)
        << name_of(route);
  }
  const program::Slice proxies = exchanged(program::Dense{program::Route::kProxies});
  EXPECT_EQ(walked(small_program(4, 4, {owned_by(0, proxies)}), {1}).ends, 1U);
}

// A rank on the way hands on and waits for no norm.
TEST(EveryOrder, OfARouteWhoseOwnerClipsWaitsAtTheOwnerAlone) {
  const program::Slice ring = exchanged(program::Dense{program::Route::kRing});
  EXPECT_EQ(walked(small_program(3, 3, {owned_by(1, ring)}, /*clipped=*/true), {1}).ends, 1U);
}

TEST(EveryOrder, OfFactorsCombinesThemAtEveryMember) {
  program::Slice factors = every_rank();
  factors.exchange.payload = program::Factors{};
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, factors)}), {3}).ends, 1U);
  EXPECT_EQ(walked(small_program(3, 3, {owned_by(0, factors)}), {1}).ends, 1U);
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, factors)}, /*clipped=*/true), {2}).ends, 1U)
      << "the owner tells the sums that all have";
}

TEST(EveryOrder, OfStaleVersionsLagsByNoMoreThanItMay) {
  const program::Slice stale = exchanged(program::Dense{}, program::Versions{1});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, stale)}), {3}).ends, 1U);
}

// Whoever is told late has gone on as if nothing was; all come to rest at the same version.
TEST(EveryOrder, OfRanksThatAreToldToStopEndsAtThatVersion) {
  WalkOptions options;
  options.steps = 2;
  options.stop = 1;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0), owned_by(1)}), options).ends, 1U);
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, every_rank())}), options).ends, 1U);
  EXPECT_EQ(walked(small_program(3, 2, {owned_by(2)}), options).ends, 1U);
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0)}, /*clipped=*/true), options).ends, 1U);
  const program::Slice stale = exchanged(program::Dense{}, program::Versions{1});
  options.steps = 3;
  options.stop = 2;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, stale)}), options).ends, 1U);
}

// Rings and trees hand on what is for the steps that still are; members combine factors by
// themselves.
TEST(EveryOrder, OfRoutesAndFactorsThatAreToldToStopEndsAtThatVersion) {
  WalkOptions options;
  options.stop = 1;
  const program::Slice ring = by_route(program::Route::kRing);
  EXPECT_EQ(walked(small_program(3, 3, {owned_by(1, ring)}), options).ends, 1U);
  const program::Slice tree = by_route(program::Route::kTree);
  EXPECT_EQ(walked(small_program(3, 3, {owned_by(1, tree)}), options).ends, 1U);
  program::Slice factors = every_rank();
  factors.exchange.payload = program::Factors{};
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, factors)}), options).ends, 1U);
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, factors)}, /*clipped=*/true), options).ends,
            1U);
}

TEST(EveryOrder, OfAsynchronousSlicesAnswersEveryContribution) {
  const program::Slice asynchronous = exchanged(program::Dense{}, program::Asynchronous{});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, asynchronous)}), {2}).ends, 1U);
  EXPECT_EQ(walked(small_program(3, 2, {owned_by(2, asynchronous)}), {2}).ends, 1U);
}

TEST(EveryOrder, OfAsynchronousRanksThatAreToldToStopEndsAtThatVersion) {
  const program::Slice asynchronous = exchanged(program::Dense{}, program::Asynchronous{});
  WalkOptions options;
  options.stop = 1;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, asynchronous)}), options).ends, 1U);
  EXPECT_EQ(walked(small_program(3, 2, {owned_by(2, asynchronous)}), options).ends, 1U);
}

TEST(EveryOrder, OfReturnedRowsGivesThemToEveryMember) {
  const program::Rows rows{program::RowTransfer::kReturn};
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, exchanged(rows))}), {2}).ends, 1U);
  const program::Slice stale = exchanged(rows, program::Versions{1});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, stale)}), {3}).ends, 1U);
  const program::Slice asynchronous = exchanged(rows, program::Asynchronous{});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, asynchronous)}), {2}).ends, 1U);
}

// Every member sums for itself and updates its own copy; the owner tells the sums that all have.
TEST(EveryOrder, OfGatheredRowsUpdatesAtEveryMember) {
  const program::Slice rows = exchanged(program::Rows{program::RowTransfer::kGather});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, rows)}), {3}).ends, 1U);
  EXPECT_EQ(walked(small_program(3, 3, {owned_by(0, rows)}), {1}).ends, 1U);
  const Walked clipped = walked(small_program(2, 2, {owned_by(0, rows)}, /*clipped=*/true), {2});
  EXPECT_EQ(clipped.ends, 1U);
  EXPECT_EQ(clipped.done.at("update0.0@5"), 1);
  EXPECT_EQ(clipped.done.at("update1.0@5"), 1);
  const program::Program scaled =
      small_program(2, 2, {owned_by(0, rows)}, /*clipped=*/false, ir::Rule::kSgd, /*scaled=*/true);
  EXPECT_EQ(walked(scaled, {2}).ends, 1U);
  WalkOptions options;
  options.stop = 1;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, rows)}), options).ends, 1U);
}

TEST(EveryOrder, OfFetchedRowsGivesThemOnceTheOwnerHasTheVersion) {
  const program::Rows rows{program::RowTransfer::kFetch};
  WalkOptions options;
  options.fetches = true;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, exchanged(rows))}), options).ends, 1U);
  EXPECT_EQ(walked(small_program(3, 2, {owned_by(2, exchanged(rows))}), options).ends, 1U);
  const program::Slice asynchronous = exchanged(rows, program::Asynchronous{});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, asynchronous)}), options).ends, 1U);
  options.steps = 3;
  const program::Slice stale = exchanged(rows, program::Versions{1});
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, stale)}), options).ends, 1U);
}

// The owner updates, and so has the version to give, once norms and flags are known.
TEST(EveryOrder, OfFetchedRowsWaitsForClipsAndFlags) {
  const program::Slice rows = exchanged(program::Rows{program::RowTransfer::kFetch});
  WalkOptions options;
  options.fetches = true;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, rows)}, /*clipped=*/true), options).ends, 1U);
  const program::Program scaled =
      small_program(2, 2, {owned_by(0, rows)}, /*clipped=*/false, ir::Rule::kSgd, /*scaled=*/true);
  EXPECT_EQ(walked(scaled, options).ends, 1U);
  options.overflows = {{1, 4}};
  EXPECT_EQ(walked(scaled, options).ends, 1U);
}

TEST(EveryOrder, OfResultsThatAreAskedForGivesThemOnceTheOwnerHasTheVersion) {
  program::Dense dense;
  dense.delivery = program::Delivery::kAsked;
  WalkOptions options;
  options.fetches = true;
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, exchanged(dense))}), options).ends, 1U);
  EXPECT_EQ(
      walked(small_program(2, 2, {owned_by(0, exchanged(dense, program::Versions{1}))}), options)
          .ends,
      1U);
}

TEST(EveryOrder, OfAClipUpdatesEachSliceOnceAfterAllSumsAreKnown) {
  const Walked walk =
      walked(small_program(2, 2, {owned_by(0), owned_by(1, {}, {1})}, /*clipped=*/true), {1});
  EXPECT_EQ(walk.ends, 1U);
  EXPECT_EQ(walk.done.at("update0.0@4"), 1);
  EXPECT_EQ(walk.done.at("update1.1@4"), 1);
  EXPECT_EQ(
      walked(small_program(2, 2, {owned_by(0, every_rank()), owned_by(1, every_rank(), {1})}, true),
             {1})
          .ends,
      1U);
}

// A library has averaged the second variable: its part of the clip's norm is known to all who
// compute, and told to the server, which owns the first one's slice.
TEST(EveryOrder, OfAVariableThatNoSliceCarriesIsUpdatedByItsStream) {
  const auto job = [](bool clipped, bool scaled, std::uint32_t owner) {
    return small_program(3, 2, {owned_by(owner)}, clipped, ir::Rule::kSgd, scaled,
                         /*one_whole=*/true);
  };
  EXPECT_EQ(walked(job(false, false, 2), {1}).ends, 1U);
  EXPECT_EQ(walked(job(true, false, 2), {1}).ends, 1U);
  EXPECT_EQ(walked(job(true, false, 0), {1}).ends, 1U);
  EXPECT_EQ(walked(job(false, true, 0), {1}).ends, 1U);
  const program::Program whole = small_program(2, 2, {}, false, ir::Rule::kSgd, /*scaled=*/true,
                                               /*one_whole=*/true);
  EXPECT_EQ(walked(whole, {2}).ends, 1U) << "nothing but the flags wakes them";
}

TEST(EveryOrder, OfAClippedSliceOfTwoVariablesTellsTheirSumsTogether) {
  EXPECT_EQ(walked(small_program(2, 2, {owned_by(0, {}, {0, 1})}, /*clipped=*/true), {2}).ends, 1U);
}

TEST(EveryOrder, OfLambMeasuresBeforeItUpdates) {
  EXPECT_EQ(
      walked(small_program(2, 2, {owned_by(0), owned_by(1, {}, {1})}, true, ir::Rule::kLamb), {1})
          .ends,
      1U);
  const Walked walk =
      walked(small_program(2, 2, {owned_by(0), owned_by(1)}, true, ir::Rule::kLamb), {1});
  EXPECT_EQ(walk.ends, 1U);
  EXPECT_EQ(walk.done.at("measure0.0@4"), 1);
  EXPECT_EQ(walk.done.at("measure1.1@4"), 1);
}

TEST(EveryOrder, OfFlagsMakesAllRanksAgree) {
  WalkOptions options;
  const auto scaled = [&](ir::Rule rule, const program::Slice& rules) {
    return walked(small_program(2, 2, {owned_by(0, rules)}, false, rule, /*scaled=*/true), options);
  };
  EXPECT_EQ(scaled(ir::Rule::kSgd, {}).ends, 1U);
  EXPECT_EQ(scaled(ir::Rule::kSgd, every_rank()).ends, 1U);
  EXPECT_EQ(scaled(ir::Rule::kLamb, {}).done.count("measure0.0@5"), 1U);
  options.overflows = {{1, 4}, {1, 5}};
  const Walked skipped = scaled(ir::Rule::kLamb, {});
  EXPECT_EQ(skipped.ends, 1U);
  EXPECT_EQ(skipped.done.count("measure0.0@5"), 0U) << "nobody measures what all skip";
  EXPECT_EQ(skipped.done.at("update0.0@5"), 1);
  options.steps = 1;
  const program::Program clipped =
      small_program(2, 2, {owned_by(0), owned_by(1, {}, {1})}, /*clipped=*/true, ir::Rule::kSgd,
                    /*scaled=*/true);
  EXPECT_EQ(walked(clipped, options).ends, 1U) << "norms come of a step that all skip, too";
  options = {3, false, {{1, 4}}};
  EXPECT_EQ(scaled(ir::Rule::kLamb, {}).done.count("measure0.0@6"), 1U)
      << "step 4 alone is skipped";
}

}  // namespace
}  // namespace autodist::protocol
