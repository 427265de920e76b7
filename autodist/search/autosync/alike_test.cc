#include "autodist/search/autosync/alike.h"

#include <gtest/gtest.h>

namespace autodist::search {
namespace {

using Indices = std::vector<std::size_t>;

// Judged candidates with these steps, ascending.
Found found_of(const std::vector<double>& steps) {
  Found found;
  for (const double step : steps) {
    Candidate candidate;
    candidate.judgement.emplace();
    candidate.judgement->step = Seconds(step);
    found.candidates.push_back(std::move(candidate));
  }
  return found;
}

TEST(Alike, PlansWithinThreePercentOfTheBestAreAlike) {
  EXPECT_EQ(alike(found_of({1, 1.01, 1.029, 1.031, 2})), (Indices{0, 1, 2}));
  EXPECT_EQ(alike(found_of({1})), (Indices{0}));
}

TEST(Alike, BuildersAreTakenInThePlaceOfSearchedPlans) {
  Found found = found_of({1, 1.01, 1.02, 1.025, 1.04});
  found.candidates[4].builder = true;
  EXPECT_EQ(alike(found), (Indices{0, 1, 2, 3}));
  found.candidates[1].builder = found.candidates[3].builder = true;
  EXPECT_EQ(alike(found), (Indices{1, 3}));
}

TEST(Alike, PlansThatDoNotFitOrWereNotSimulatedInFullAreLeftOut) {
  Found found = found_of({1, 1.001, 1.002, 1.003, 1.004});
  found.candidates[1].judgement->in_full = false;
  found.candidates[3].judgement->missing = Bytes{1};
  EXPECT_EQ(alike(found), (Indices{0, 2}));
  found.candidates[2].judgement.reset();
  EXPECT_EQ(alike(found), (Indices{0}));
}

TEST(Alike, LibraryAllReducesAreTakenOnlyWhereThereIsNothingElse) {
  Found found = found_of({1, 1.01, 1.02});
  found.candidates[0].judgement->by_library = true;
  found.candidates[2].judgement->by_library = true;
  EXPECT_EQ(alike(found), (Indices{1}));
  found.candidates[1].judgement->by_library = true;
  EXPECT_EQ(alike(found), (Indices{0, 1, 2}));
}

TEST(Alike, ASearchedPlanComesBeforeABuilderWithLibraryAllReduces) {
  Found found = found_of({1, 1.01, 1.02});
  found.candidates[1].judgement->by_library = true;
  found.candidates[1].builder = true;
  EXPECT_EQ(alike(found), (Indices{0, 2}));
  found.candidates[2].builder = true;
  EXPECT_EQ(alike(found), (Indices{2}));
}

TEST(Alike, SixteenOfManyAreTakenAtEvenDistances) {
  std::vector<double> steps;
  for (int i = 0; i < 300; ++i) steps.push_back(1 + i * 1e-4);
  const Indices some = alike(found_of(steps));
  EXPECT_EQ(some.size(), 16U);
  EXPECT_EQ(some.front(), 0U);
  EXPECT_EQ(some.back(), 299U);
  for (std::size_t i = 1; i < some.size(); ++i) EXPECT_NEAR(some[i] - some[i - 1], 20, 1);
}

}  // namespace
}  // namespace autodist::search
