#include "autodist/search/autosync/diverse.h"

#include <gtest/gtest.h>

#include <string>

namespace autodist::search {
namespace {

constexpr std::size_t kVariables = 10;

// A strategy whose first `moved` variables are on the second server.
Candidate candidate(std::size_t moved, double step) {
  Candidate made;
  for (std::size_t i = 0; i < kVariables; ++i) {
    strategy::NodeConfig node;
    node.name = "v" + std::to_string(i);
    node.synchronizer = strategy::PsSynchronizer{i < moved ? "b:CPU:0" : "a:CPU:0"};
    made.strategy.nodes.push_back(node);
  }
  made.judgement = Judgement{};
  made.judgement->step = Seconds(step);
  return made;
}

Found found_of(std::vector<Candidate> candidates) {
  Found found;
  found.candidates = std::move(candidates);
  return found;
}

using Indices = std::vector<std::size_t>;

TEST(Diverse, PartsOfABatchAreADifference) {
  Found found = found_of({candidate(0, 1), candidate(0, 1.1)});
  EXPECT_EQ(diverse(found, 2), (Indices{0})) << "one plan under two names";
  found.candidates.front().strategy.batch_shares = {3, 1};
  EXPECT_EQ(diverse(found, 2), (Indices{0, 1}));
}

TEST(Diverse, TheBestThenTheBestBuilderThenWhatIsUnlikeThem) {
  // 1 differs from 0 in a tenth of the variables, 2 and 4 in more.
  Found found = found_of({candidate(0, 1), candidate(1, 1.1), candidate(5, 1.2), candidate(6, 1.3),
                          candidate(10, 1.4)});
  found.best_builder = 3;
  EXPECT_EQ(diverse(found, 1), (Indices{0}));
  EXPECT_EQ(diverse(found, 2), (Indices{0, 3}));
  EXPECT_EQ(diverse(found, 3), (Indices{0, 3, 4})) << "2 is but a tenth away from 3";
  EXPECT_EQ(diverse(found, 5), (Indices{0, 3, 4, 1, 2})) << "then the best of the others";
}

TEST(Diverse, NothingRunsTwice) {
  Found found = found_of({candidate(0, 1), candidate(0, 1), candidate(1, 2), candidate(0, 3)});
  found.best_builder = 1;
  EXPECT_EQ(diverse(found, 4), (Indices{0, 2}));
}

TEST(Diverse, WhatWasNotJudgedOrDoesNotFitDoesNotRun) {
  Found found = found_of({candidate(0, 1), candidate(5, 2), candidate(10, 3)});
  found.candidates[1].judgement.reset();
  found.candidates[2].judgement->missing = Bytes{1};
  EXPECT_EQ(diverse(found, 3), (Indices{0}));
  EXPECT_TRUE(diverse(found_of({}), 3).empty());
}

TEST(Diverse, OtherSlicesAreAnotherPlan) {
  Found found = found_of({candidate(0, 1), candidate(0, 2)});
  found.candidates[1].strategy.slice_bytes = Bytes{100'000};
  EXPECT_EQ(diverse(found, 2), (Indices{0, 1}));
}

}  // namespace
}  // namespace autodist::search
