#include "autodist/studies/figures.h"

#include <gtest/gtest.h>

namespace autodist::studies {
namespace {

TEST(Figures, KendallCountsPairsInTheSameOrder) {
  EXPECT_EQ(kendall({{1, 10}, {2, 20}, {3, 30}}), 1);
  EXPECT_EQ(kendall({{1, 30}, {2, 20}, {3, 10}}), -1);
  EXPECT_NEAR(kendall({{1, 10}, {2, 30}, {3, 20}}), 1.0 / 3, 1e-15);
  EXPECT_EQ(kendall({{1, 10}, {1, 20}}), 0) << "ties say nothing";
  EXPECT_EQ(kendall({}), 0);
}

TEST(Figures, GoalsAreMetOrMissedOnTheirOwnSide) {
  const std::vector<Goal> goals{{"rate", "per second", true, 10}, {"time", "of one", false, 2}};
  Figures figures;
  figures.figures = {{"rate", 10}, {"time", 2.5}};
  figures.raw = {{"runs", 3}};
  const std::string page = goals_page(goals, figures);
  EXPECT_NE(page.find("| `rate` | per second | 10 | ≥ 10 | met |"), std::string::npos) << page;
  EXPECT_NE(page.find("| `time` | of one | 2.5 | ≤ 2 | missed |"), std::string::npos) << page;
  EXPECT_NE(page.find("| `runs` | 3 |"), std::string::npos) << page;
  figures.figures.erase("time");
  EXPECT_NE(goals_page(goals, figures).find("not measured"), std::string::npos);
  EXPECT_EQ(goals_table(goals, figures).find("time"), std::string::npos);
}

TEST(Figures, TheLeastOfRunsCountsTheProcessAlone) {
  int runs = 0;
  const double seconds = least_cpu_seconds(4, [&] { ++runs; });
  EXPECT_EQ(runs, 4);
  EXPECT_GE(seconds, 0);
  EXPECT_LT(seconds, 1);
}

}  // namespace
}  // namespace autodist::studies
