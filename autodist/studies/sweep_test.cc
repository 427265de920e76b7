#include "autodist/studies/sweep.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autodist/planning/archive.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/search/builders/builders.h"

namespace autodist::studies {
namespace {

cluster::Cluster eleven() {
  return cluster::read_cluster(planning::shipped_clusters() + "/autosync-a.yml");
}

TEST(Sweep, SlowerLinksTakeLonger) {
  search::SearchOptions options;
  options.budget = {Seconds{}, 4};
  const StrategyCase ncf{"ncf", "ncf", 256, true};
  const std::vector<SweepRow> rows = sweep({{ncf, 1}, {ncf, 100}}, eleven(), options, [](auto&) {});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GT(rows[0].row.found_step, rows[1].row.found_step);
  EXPECT_GT(rows[0].row.problem_bound, rows[1].row.problem_bound);
  const std::string page = sweep_page(rows, {}, "4 simulations");
  EXPECT_NE(page.find("| ncf | 256 | 100 |"), std::string::npos) << page;
}

TEST(Sweep, HasEveryClaimedModelAtTwoBatches) {
  const std::vector<SweepCase> cases = sweep_cases(true);
  EXPECT_EQ(cases.size(), 4U * 2 * 3);
  EXPECT_EQ(sweep_cases(false).size(), 4U * 2 * 7);
}

TEST(Chance, GivesTheShareOfDrawnStrategiesThatAreFasterThanEachBuilder) {
  search::SearchOptions options;
  options.budget = {Seconds{}, 4};
  const StrategyCase ncf{"ncf", "ncf", 256, true};
  const Chance chance = chance_of(ncf, eleven(), 5, options);
  EXPECT_EQ(chance.shares.size(), search::seeds().size() - 2)
      << "all but what is recommended by hand";
  double least = 1;
  double most = 0;
  for (const auto& [name, share] : chance.shares) {
    EXPECT_NEAR(share * 5, std::round(share * 5), 1e-9) << name;
    least = std::min(least, share);
    most = std::max(most, share);
  }
  EXPECT_EQ(most, 1) << "some builders are worse than all that was drawn";
  EXPECT_LT(least, 1);
  EXPECT_EQ(chance_of(ncf, eleven(), 5, options).shares, chance.shares);
}

}  // namespace
}  // namespace autodist::studies
