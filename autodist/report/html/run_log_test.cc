#include "autodist/report/html/run_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "autodist/base/error.h"

namespace autodist::report {
namespace {

TEST(RunLog, ReadsJsonLinesAndCsvAlike) {
  const RunLog lines = parse_run_log(
      "{\"step\":0,\"loss\":2.5,\"note\":\"s3cret\"}\n{\"step\":1,\"loss\":null}\n", "log");
  EXPECT_EQ(lines.steps, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(lines.names, std::vector<std::string>{"loss"});
  EXPECT_EQ(lines.columns[0][0], 2.5);
  EXPECT_TRUE(std::isnan(lines.columns[0][1]));
  const RunLog csv = parse_run_log("step,loss\r\n0,2.5\r\n1,nan\r\n", "log.csv");
  EXPECT_EQ(csv.steps, lines.steps);
  EXPECT_EQ(csv.names, lines.names);
  EXPECT_EQ(csv.columns[0][0], 2.5);
  EXPECT_TRUE(std::isnan(csv.columns[0][1]));
}

TEST(RunLog, ALaterRunOfAStepStands) {
  const RunLog log = parse_run_log("step,loss\n0,3\n1,2\n2,1\n1,7\n2,6\n", "log");
  EXPECT_EQ(log.steps, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(log.columns[0], (std::vector<double>{3, 7, 6}));
  EXPECT_EQ(log.overwritten, 2);
}

TEST(RunLog, AColumnThatComesLaterHasGapsBefore) {
  const RunLog log = parse_run_log("{\"step\":0,\"a\":1}\n{\"step\":1,\"a\":2,\"b\":3}\n", "log");
  ASSERT_EQ(log.names.size(), 2U);
  EXPECT_TRUE(std::isnan(log.columns[1][0]));
  EXPECT_EQ(log.columns[1][1], 3);
}

TEST(RunLog, KnowsThePlanOfAStepWhereTheLogSaysIt) {
  const RunLog lines = parse_run_log(
      "{\"step\":0,\"a\":1}\n{\"step\":1,\"a\":2,\"plan\":\"builder PS\"}\n"
      "{\"step\":2,\"a\":3,\"plan\":\"search, \\\"best\\\"\"}\n{\"step\":3,\"a\":3,\"plan\":"
      "\"builder PS\"}\n",
      "log");
  EXPECT_EQ(lines.names, std::vector<std::string>{"a"});
  EXPECT_EQ(lines.plans, (std::vector<std::string>{"", "builder PS", "search, \"best\""}));
  EXPECT_EQ(lines.plan_of, (std::vector<std::size_t>{0, 1, 2, 1}));
  const RunLog csv = parse_run_log(
      "step,a,plan\n0,1,\"\"\n1,2,\"builder PS\"\n2,3,\"search, \"\"best\"\"\"\n3,3,builder PS\n",
      "log.csv");
  EXPECT_EQ(csv.names, lines.names);
  EXPECT_EQ(csv.columns, (std::vector<std::vector<double>>{{1, 2, 3, 3}}));
  EXPECT_EQ(csv.plans, lines.plans);
  EXPECT_EQ(csv.plan_of, lines.plan_of);
}

TEST(RunLog, ThinningKeepsStepsOfEveryPlan) {
  RunLog log;
  for (std::int64_t step = 0; step < 10'000; ++step) {
    log.add(step, {}, step >= 5000 && step < 5010 ? "tried" : "kept");
  }
  const RunLog part = thinned(log, 300);
  ASSERT_EQ(part.plan_of.size(), part.steps.size());
  EXPECT_EQ(std::count(part.plan_of.begin(), part.plan_of.end(), 1U), 1);
}

TEST(RunLog, PassesOverALastLineThatWasCutShort) {
  EXPECT_EQ(parse_run_log("{\"step\":0,\"a\":1}\n{\"step\":1,\"a", "log").steps.size(), 1U);
  EXPECT_EQ(parse_run_log("step,a,b\n0,1,2\n1,1", "log").steps.size(), 1U);
}

TEST(RunLog, RefusesWhatIsNoLog) {
  EXPECT_THROW(parse_run_log("", "log"), Error);
  EXPECT_THROW(parse_run_log("nothing\n", "log"), Error);
  EXPECT_THROW(parse_run_log("step,a\n", "log"), Error);
  EXPECT_THROW(parse_run_log("{\"loss\":1}\n{\"loss\":2}\n", "log"), Error);
  EXPECT_THROW(parse_run_log("{\"a\n{\"step\":1}\n", "log"), Error);
  EXPECT_THROW(parse_run_log("step,a\n0,1,2\n1,1\n", "log"), Error);
  EXPECT_THROW(parse_run_log("step,a\nfirst,1\n", "log"), Error);
}

TEST(RunLog, ThinningKeepsEveryExtremeAndBothEnds) {
  RunLog log;
  log.names = {"loss", "rate"};
  log.columns.resize(2);
  for (std::int64_t step = 0; step < 10'000; ++step) {
    const double rate = step == 4567 ? 1e6 : step == 8901 ? std::nan("") : 100;
    log.add(step, {step == 1234 ? 99 : 1.0 / static_cast<double>(step + 1), rate});
  }
  const RunLog part = thinned(log, 600);
  EXPECT_LE(part.steps.size(), 602U);
  EXPECT_EQ(part.steps.front(), 0);
  EXPECT_EQ(part.steps.back(), 9999);
  EXPECT_TRUE(std::is_sorted(part.steps.begin(), part.steps.end()));
  for (const std::int64_t step : {1234, 4567, 8901}) {
    EXPECT_TRUE(std::binary_search(part.steps.begin(), part.steps.end(), step)) << step;
  }
}

TEST(RunLog, AShortRunIsNotThinned) {
  const RunLog log = parse_run_log("step,a\n0,1\n1,2\n", "log");
  EXPECT_EQ(thinned(log, 2).steps, log.steps);
}

}  // namespace
}  // namespace autodist::report
