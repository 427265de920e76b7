// Dynamic loss scaling as real processes (loss_scaling_job.cc): GradScaler's scales, its skipped
// steps, its parameters, whichever rank it is that overflows.

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <regex>
#include <string>
#include <vector>

#include "tests/library_collectives.h"
#include "tests/outcome_of.h"

namespace autodist {
namespace {

namespace fs = std::filesystem;
using namespace testing_jobs;

const std::string kDynamic = "dynamic:interval=3";

Outcome run(const std::string& arguments) {
  return outcome_of(AUTODIST_TEST_PROGRAMS "/loss_scaling_job " + arguments);
}

struct Counts {
  int skipped = 0;
  std::vector<int> overflows;  // by line: steps in which that rank's own gradients overflowed
};

// Every rank's line: GradScaler's scales, its parameters, and as many skipped steps.
Counts expect_equal(const Outcome& outcome, int ranks) {
  Counts counts;
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  const std::regex line(
      R"(rank \d+ same (\d) skipped (\d+) told (\d+) overflows (\d+) difference (\S+) scales)");
  for (std::sregex_iterator each(outcome.text.begin(), outcome.text.end(), line), end; each != end;
       ++each) {
    EXPECT_EQ((*each)[1], "1") << outcome.text;
    EXPECT_EQ((*each)[2], (*each)[3]) << outcome.text;
    counts.skipped = std::stoi((*each)[2]);
    counts.overflows.push_back(std::stoi((*each)[4]));
    EXPECT_LT(std::stod((*each)[5]), 1e-11) << outcome.text;
  }
  EXPECT_EQ(static_cast<int>(counts.overflows.size()), ranks) << outcome.text;
  return counts;
}

using Case = std::tuple<int, std::string, std::string>;

class EveryJob : public ::testing::TestWithParam<Case> {};

TEST_P(EveryJob, EqualsGradScaler) {
  const auto& [ranks, builder, optimizer] = GetParam();
  if (testing_jobs::is_left_out(builder)) GTEST_SKIP() << "this build has no Gloo";
  const Scratch scratch;
  const std::string job =
      "local:" + std::to_string(ranks) + " " + builder + " " + kDynamic + " " + optimizer + " ";
  const Outcome outcome = run(job + "0 24 " + (scratch / "x"));
  const Counts counts = expect_equal(outcome, ranks);
  EXPECT_GE(counts.skipped, 3) << outcome.text;
  // One rank at a time overflows, and all skip.
  EXPECT_EQ(std::accumulate(counts.overflows.begin(), counts.overflows.end(), 0), counts.skipped);
}

INSTANTIATE_TEST_SUITE_P(, EveryJob,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values("PS", "PartitionedPS", "AllReduce"),
                                            ::testing::Values("adam:lr=0.01")),
                         [](const auto& each) {
                           return std::get<1>(each.param) + "On" +
                                  std::to_string(std::get<0>(each.param));
                         });
INSTANTIATE_TEST_SUITE_P(
    Others, EveryJob,
    ::testing::Values(Case(2, "AllReduce:update_at=owner", "sgd:lr=0.01,momentum=0.9"),
                      Case(2, "DDP-like", "adam:lr=0.01"),
                      Case(2, "AllReduce:algorithm=library", "adam:lr=0.01"),
                      Case(3, "AllReduce:algorithm=ring", "adam:lr=0.01"),
                      Case(2, "AllReduce:algorithm=sufficient_factors", "adam:lr=0.01"),
                      Case(2, "AllReduce:algorithm=library", "sgd:lr=0.01,momentum=0.9,clip=0.5"),
                      Case(2, "PS", "sgd:lr=0.01,momentum=0.9,clip=0.5"),
                      Case(2, "AllReduce", "sgd:lr=0.01,momentum=0.9,clip=0.5")));

TEST(LossScaling, ResumesToTheByte) {
  const Scratch scratch;
  for (const char* builder : {"PartitionedPS", "AllReduce"}) {
    const std::string job = std::string("local:2 ") + builder + " " + kDynamic + " adam:lr=0.01 ";
    const std::string whole = scratch / (std::string(builder) + "-whole");
    const std::string half = scratch / (std::string(builder) + "-half");
    const std::string rest = scratch / (std::string(builder) + "-rest");
    ASSERT_EQ(run(job + "0 18 " + whole).code, 0);
    ASSERT_EQ(run(job + "0 8 " + half).code, 0);
    const Outcome resumed = run(job + "8 18 " + half + " " + rest);
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find("same 1"), std::string::npos) << resumed.text;
    for (const auto& file : fs::directory_iterator(whole + "/step-18")) {
      EXPECT_EQ(slurp(file.path()), slurp(fs::path(rest + "/step-18") / file.path().filename()))
          << file.path();
    }
  }
}

// Below what overflows nothing is skipped, and the scale stays.
TEST(LossScaling, AFixedScaleStays) {
  const Scratch scratch;
  EXPECT_EQ(expect_equal(run("local:2 PS 1024 adam:lr=0.01 0 12 " + (scratch / "x")), 2).skipped,
            0);
}

TEST(LossScaling, RefusesWhatItCannotGoWith) {
  const Scratch scratch;
  const std::string rest = " dynamic adam:lr=0.01 0 1 " + (scratch / "x");
  const Outcome stale = run("local:2 PS:staleness=2" + rest);
  EXPECT_EQ(stale.code, 4) << stale.text;
  EXPECT_NE(stale.text.find("loss scaling needs every step's gradients at once"), std::string::npos)
      << stale.text;
  const Outcome feedback = run("local:2 AllReduce:compressor=HorovodCompressorEF" + rest);
  EXPECT_EQ(feedback.code, 4) << feedback.text;
  EXPECT_EQ(run("local:2 PS dynamic:much adam:lr=0.01 0 1 " + (scratch / "x")).code, 2);
}

}  // namespace
}  // namespace autodist
