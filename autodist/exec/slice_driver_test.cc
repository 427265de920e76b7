#include "autodist/exec/slice_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/ir/optimizer.h"

namespace autodist::exec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kBias;
using testing::kWide;

// Two ranks that both compute and own slices in turns. The learning rate is 1.
class SliceDriverTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const program::Program> two_ranks() {
    ir::UpdateRule rule = ir::default_rule(ir::Rule::kSgd);
    rule.options["lr"] = 1;
    testing::Plan plan;
    plan.ranks = 2;
    plan.owner = testing::spread_over(2);
    return testing::program_of(testing::two_layers(rule), plan);
  }
  static RunnerOptions impatient() {
    RunnerOptions options;
    options.wait_limit = Seconds{0.2};
    return options;
  }
  void contribute(testing::JobEngines& job, std::uint32_t rank, ir::VariableId variable,
                  double value, std::uint64_t step, std::int64_t samples) {
    job.at(rank).driver().contribute(variable, job.gradient(variable, value), step, samples);
    job.at(rank).driver().release(variable);
  }

  const std::shared_ptr<const program::Program> program_ = two_ranks();
};

TEST_F(SliceDriverTest, EveryRankInstallsTheUpdateByTheMeanOfAllSamples) {
  testing::JobEngines job(program_);
  const torch::Tensor before = job.tensor(0, kWide).clone();
  contribute(job, 0, kWide, 2, 0, 1);
  contribute(job, 1, kWide, 6, 0, 3);
  for (const std::uint32_t rank : {0U, 1U}) {
    job.at(rank).driver().await_settled(kWide, 1);
    EXPECT_TRUE(job.tensor(rank, kWide).equal(before - 5)) << "(2 * 1 + 6 * 3) / 4";
  }
}

TEST_F(SliceDriverTest, ARankWithoutSamplesTakesPartWithNothing) {
  testing::JobEngines job(program_);
  const torch::Tensor before = job.tensor(0, kBias).clone();
  contribute(job, 0, kBias, 2, 0, 4);
  job.at(1).driver().contribute(kBias, {}, 0, 0);
  job.at(1).driver().release(kBias);
  job.at(1).driver().await_settled(kBias, 1);
  EXPECT_TRUE(job.tensor(1, kBias).equal(before - 2));
}

TEST_F(SliceDriverTest, AGateThatStaysShutNamesWhatIsMissingAndWhoOwnsIt) {
  testing::JobEngines job(program_, impatient());
  EXPECT_TRUE(job.at(0).driver().hold(kBias, 0)) << "the first version is there";
  contribute(job, 0, kBias, 2, 0, 1);
  try {
    job.at(0).driver().hold(kBias, 1);
    FAIL() << "rank 1 has contributed nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("variable 'b2' still has version 0"),
                                    HasSubstr("1 of 1 slices are missing: slice 9 of rank 1")));
  }
}

TEST_F(SliceDriverTest, AVariableIsNotWrittenWhileTheStepReadsIt) {
  testing::JobEngines job(program_);
  const torch::Tensor before = job.tensor(0, kBias).clone();
  job.at(0).driver().hold(kBias, 0);
  job.at(0).driver().contribute(kBias, job.gradient(kBias, 3), 0, 1);
  contribute(job, 1, kBias, 3, 0, 1);
  job.at(1).driver().await_settled(kBias, 1);
  EXPECT_TRUE(job.tensor(0, kBias).equal(before)) << "rank 0 still reads";
  job.at(0).driver().release(kBias);
  job.at(0).driver().await_settled(kBias, 1);
  EXPECT_TRUE(job.tensor(0, kBias).equal(before - 3));
}

TEST_F(SliceDriverTest, ValuesFromOutsideAreWhatTheNextUpdateBeginsWith) {
  testing::JobEngines job(program_);
  for (const std::uint32_t rank : {0U, 1U}) {
    job.tensor(rank, kWide).fill_(8);
    job.at(rank).driver().reload({kWide}, 0);
  }
  for (const std::uint32_t rank : {0U, 1U}) contribute(job, rank, kWide, 1, 0, 1);
  for (const std::uint32_t rank : {0U, 1U}) {
    job.at(rank).driver().await_settled(kWide, 1);
    EXPECT_TRUE(job.tensor(rank, kWide).eq(7).all().item<bool>());
  }
}

}  // namespace
}  // namespace autodist::exec
