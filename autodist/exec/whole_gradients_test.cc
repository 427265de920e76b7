#include "autodist/exec/whole_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "autodist/base/error.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/ir/optimizer.h"

namespace autodist::exec {
namespace {

using ::testing::HasSubstr;
using testing::kBias;

constexpr program::CollectiveId kAll(0);

// A library whose other ranks bring the same as this one; or that has lost them.
class Library : public comm::Collectives {
 public:
  explicit Library(double ranks) : ranks_(ranks) {}
  void all_reduce(void* data, std::size_t count, DType dtype) override {
    if (lost_) fail(ErrorCode::kPeersLost, "library: connection closed.");
    ASSERT_EQ(dtype, DType::kFloat64);
    auto* values = static_cast<double*>(data);
    for (std::size_t i = 0; i < count; ++i) values[i] *= ranks_;
  }
  [[nodiscard]] std::string describe() const override { return "the same again"; }
  void lose() { lost_ = true; }

 private:
  double ranks_;
  bool lost_ = false;
};

// `ranks` ranks; a job of one has no library and updates by itself. The learning rate is 1.
std::shared_ptr<const program::Program> job_of(std::uint32_t ranks) {
  ir::UpdateRule rule = ir::default_rule(ir::Rule::kSgd);
  rule.options["lr"] = 1;
  testing::Plan plan;
  plan.ranks = ranks;
  plan.library = ranks > 1;
  return testing::program_of(testing::two_layers(rule), plan);
}

void contribute_all(testing::JobEngines& job, double value) {
  for (std::size_t i = 0; i < 4; ++i) {
    const ir::VariableId variable(i);
    job.at(0).whole().contribute(variable, job.gradient(variable, value), 0, 2);
    job.at(0).driver().release(variable);
  }
}

TEST(WholeGradients, ARankAloneUpdatesByItsOwnGradient) {
  testing::JobEngines job(job_of(1));
  const torch::Tensor before = job.tensor(0, kBias).clone();
  contribute_all(job, 3);
  job.at(0).whole().update({kBias}, 0);
  EXPECT_TRUE(job.tensor(0, kBias).equal(before - 3));
}

TEST(WholeGradients, TheLibrarysSumIsDividedByAllSamples) {
  Library library(2);
  testing::JobEngines job(job_of(2), {}, &library);
  const torch::Tensor before = job.tensor(0, kBias).clone();
  contribute_all(job, 3);
  job.at(0).whole().all_reduce(kAll, 0);
  job.at(0).whole().update({kBias}, 0);
  EXPECT_TRUE(job.tensor(0, kBias).equal(before - 3)) << "the mean of equal gradients";
}

TEST(WholeGradients, AnUpdateWaitsUntilTheStepHasReadTheVariable) {
  RunnerOptions options;
  options.wait_limit = Seconds{0.2};
  testing::JobEngines job(job_of(1), options);
  job.at(0).driver().hold(kBias, 0);
  job.at(0).whole().contribute(kBias, job.gradient(kBias, 3), 0, 2);
  try {
    job.at(0).whole().update({kBias}, 0);
    FAIL() << "the step still reads it";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("variable 'b2' at step 0: gradient complete, still read"));
  }
  job.at(0).driver().release(kBias);
  job.at(0).whole().update({kBias}, 0);
}

TEST(WholeGradients, AnAllReduceWaitsForAllItsGradients) {
  RunnerOptions options;
  options.wait_limit = Seconds{0.2};
  Library library(2);
  testing::JobEngines job(job_of(2), options, &library);
  job.at(0).whole().contribute(kBias, job.gradient(kBias, 3), 0, 2);
  EXPECT_THROW(job.at(0).whole().all_reduce(kAll, 0), Error);
}

// A chief that leaves its loop tells the others, whose last step may not be through.
TEST(WholeGradients, TheLastStepIsFinishedAlsoWhereTheJobHasEnded) {
  Library library(2);
  testing::JobEngines job(job_of(2), {}, &library);
  const torch::Tensor before = job.tensor(0, kBias).clone();
  job.at(0).signal().end(
      std::make_exception_ptr(Error(ErrorCode::kUsage, "the chief has finished")));
  std::thread stream([&] {
    job.at(0).whole().all_reduce(kAll, 0);
    job.at(0).whole().update({kBias}, 0);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it waits for the gradients
  contribute_all(job, 3);
  stream.join();
  EXPECT_TRUE(job.tensor(0, kBias).equal(before - 3));
}

// The library notices a lost peer at once and cannot say which; the exchange names it a little
// later.
TEST(WholeGradients, TheReasonOfALostLibraryIsTheExchanges) {
  Library library(2);
  testing::JobEngines job(job_of(2), {}, &library);
  contribute_all(job, 3);
  library.lose();
  std::thread exchange([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    job.at(0).signal().fail(
        std::make_exception_ptr(Error(ErrorCode::kPeersLost, "rank 1 was killed.")));
  });
  try {
    job.at(0).whole().all_reduce(kAll, 0);
    ADD_FAILURE() << "the library has lost its peers";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 was killed"));
  }
  exchange.join();
}

}  // namespace
}  // namespace autodist::exec
