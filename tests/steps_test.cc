// Several steps over one set of variables, as real processes (steps_job.cc): equal to plain
// libtorch, resumed to the byte.

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>

#include "tests/outcome_of.h"

namespace autodist {
namespace {

namespace fs = std::filesystem;
using namespace testing_jobs;

Outcome run(const std::string& arguments) {
  return outcome_of(AUTODIST_TEST_PROGRAMS "/steps_job " + arguments);
}

// Every rank's line: equal to plain libtorch, and nothing trained that is not the step's.
void expect_equal(const Outcome& outcome, int ranks, const std::string& counts) {
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const std::regex line(
      R"(rank \d+ losses (\S+) parameters (\S+) alone (\d) steps ([\d ]+); (.*))");
  int found = 0;
  for (std::sregex_iterator each(outcome.text.begin(), outcome.text.end(), line), end; each != end;
       ++each, ++found) {
    EXPECT_LT(std::stod((*each)[1]), 1e-9) << outcome.text;
    EXPECT_LT(std::stod((*each)[2]), 1e-9) << outcome.text;
    EXPECT_EQ((*each)[3], "1") << outcome.text;
    EXPECT_EQ((*each)[4], counts);
    EXPECT_NE((*each)[5].str().find("Did you mean 'generator'?"), std::string::npos);
  }
  EXPECT_EQ(found, ranks) << outcome.text;
}

using Case = std::tuple<int, std::string>;

class EveryJob : public ::testing::TestWithParam<Case> {};

TEST_P(EveryJob, EqualsPlainLibtorch) {
  const auto& [ranks, builder] = GetParam();
  const Scratch scratch;
  const std::string job = "local:" + std::to_string(ranks) + " " + builder + " ";
  expect_equal(run(job + "0 4 " + (scratch / "x")), ranks, "12 8 4 4");
}

INSTANTIATE_TEST_SUITE_P(, EveryJob,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values("PS", "PartitionedPS", "AllReduce")),
                         [](const auto& each) {
                           return std::get<1>(each.param) + "On" +
                                  std::to_string(std::get<0>(each.param));
                         });

TEST(Steps, ResumeToTheByte) {
  const Scratch scratch;
  for (const char* builder : {"PartitionedPS", "AllReduce"}) {
    const std::string job = std::string("local:2 ") + builder + " ";
    const std::string to = scratch / builder;
    expect_equal(run(job + "0 4 " + to + "-whole"), 2, "12 8 4 4");
    expect_equal(run(job + "0 2 " + to + "-half"), 2, "6 4 2 2");
    expect_equal(run(job + "2 4 " + to + "-half " + to + "-rest"), 2, "12 8 4 4");
    for (const auto& file : fs::directory_iterator(to + "-whole/step-28")) {
      EXPECT_EQ(slurp(file.path()), slurp(fs::path(to + "-rest/step-28") / file.path().filename()))
          << file.path();
    }
  }
}

TEST(Steps, RefuseWhatCannotBeShared) {
  const Scratch scratch;
  const Outcome outcome = run("local:2 PS:sync=false 0 1 " + (scratch / "x"));
  EXPECT_EQ(outcome.code, 4) << outcome.text;
  EXPECT_NE(outcome.text.find("is trained by other steps, too, and is asynchronous here"),
            std::string::npos)
      << outcome.text;
}

TEST(Steps, SaysWhichStepsACheckpointHas) {
  const Scratch scratch;
  const std::string whole = scratch / "whole";
  ASSERT_EQ(run("local:1 PS 0 1 " + whole).code, 0);
  const std::string manifest = slurp(whole + "/step-7/manifest.json");
  EXPECT_TRUE(std::regex_search(
      manifest, std::regex(R"("steps": \{\s*"critic": 3,\s*"evaluate": 1,\s*"generator": 2,)"
                           R"(\s*"joint": 1\s*\})")))
      << manifest;
}

}  // namespace
}  // namespace autodist
