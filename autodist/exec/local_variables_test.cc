#include "autodist/exec/local_variables.h"

#include <gtest/gtest.h>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/protocol/job.h"

namespace autodist::exec {
namespace {

using testing::kBias;
using testing::kWide;

// One of two ranks.
class LocalVariablesTest : public ::testing::Test {
 protected:
  void make(program::UpdateAt update_at) {
    ir::UpdateRule rule = ir::default_rule(ir::Rule::kSgd);
    rule.options["lr"] = 0.5;
    testing::Plan plan;
    plan.ranks = 2;
    plan.update_at = update_at;
    const auto graph = testing::two_layers(rule);
    program_ = testing::program_of(graph, plan);
    bindings_.variables = testing::initial_values(*graph, 7);
    job_ = std::make_unique<protocol::Job>(*program_);
    norms_ = std::make_unique<Norms>(job_->norms.parts, signal_);
    scaler_ = std::make_unique<LossScaler>(std::nullopt, 0, signal_);
    variables_ = std::make_unique<LocalVariables>(*program_, *norms_, *scaler_, nullptr, bindings_,
                                                  staging_, signal_);
  }

  [[nodiscard]] program::SliceId slice(ir::VariableId variable, std::size_t index = 0) const {
    return program_->plan(variable).slices[index];
  }
  void take(program::SliceId slice, double value, bool goes_in = false) {
    const std::int64_t count = element_count(program_->slice(slice));
    auto keep = std::make_shared<std::vector<double>>(count, value);
    const auto* data = reinterpret_cast<const std::byte*>(keep->data());
    variables_->take(slice, 0, 4, {data, count * sizeof(double), keep}, "", goes_in);
  }
  [[nodiscard]] std::string missing(ir::VariableId variable) {
    const MutexLock lock(signal_);
    return variables_->missing_results(variable, 0);
  }
  [[nodiscard]] bool is_all(ir::VariableId variable, double value) const {
    return variables_->tensor(variable).eq(value).all().item<bool>();
  }

  std::shared_ptr<const program::Program> program_;
  capture::Bindings bindings_;
  Staging staging_{torch::kCPU, Bytes{}};
  Signal signal_;
  std::unique_ptr<protocol::Job> job_;
  std::unique_ptr<Norms> norms_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<LocalVariables> variables_;
};

TEST_F(LocalVariablesTest, AResultWaitsUntilItsVersionIsInstalled) {
  make(program::UpdateAt::kOwner);
  take(slice(kBias), 3);
  EXPECT_FALSE(is_all(kBias, 3));
  variables_->install(kBias, 0);
  EXPECT_TRUE(is_all(kBias, 3));
}

TEST_F(LocalVariablesTest, ParametersThatNobodyReadsAnyMoreGoInAsTheyCome) {
  make(program::UpdateAt::kOwner);
  take(slice(kBias), 3, /*goes_in=*/true);
  EXPECT_TRUE(is_all(kBias, 3));
  variables_->install(kBias, 0);
  EXPECT_TRUE(is_all(kBias, 3));
}

TEST_F(LocalVariablesTest, NamesTheSlicesThatAreMissing) {
  make(program::UpdateAt::kOwner);
  EXPECT_EQ(missing(kBias), "1 of 1 slices are missing: slice 9 of rank 0 (127.0.0.1)");
  for (std::size_t i = 0; i < 4; ++i) take(slice(kWide, i), 3);
  EXPECT_EQ(missing(kWide), "1 of 5 slices are missing: slice 4 of rank 0 (127.0.0.1)");
  take(slice(kWide, 4), 3);
  variables_->install(kWide, 0);
  EXPECT_TRUE(is_all(kWide, 3));
}

TEST_F(LocalVariablesTest, ASecondResultOfAStepIsADefect) {
  make(program::UpdateAt::kOwner);
  take(slice(kBias), 3);
  EXPECT_THROW(take(slice(kBias), 4), InternalError);
}

TEST_F(LocalVariablesTest, WhereEveryRankUpdatesTheRuleIsAppliedToTheAverage) {
  make(program::UpdateAt::kEveryRank);
  const torch::Tensor before = variables_->tensor(kBias).clone();
  take(slice(kBias), 2);
  variables_->install(kBias, 0);
  EXPECT_TRUE(variables_->tensor(kBias).equal(before - 1));
  EXPECT_EQ(variables_->states(kWide).size(), 5U) << "one per piece";
}

TEST_F(LocalVariablesTest, AWriteOfSomebodyElseIsFoundBeforeItIsLost) {
  make(program::UpdateAt::kOwner);
  take(slice(kBias), 3);
  bindings_.variables[kBias.value].add_(1);
  EXPECT_THROW(variables_->install(kBias, 0), Error);
}

TEST_F(LocalVariablesTest, ParametersFromTheOwnerOverwriteWhatIsHere) {
  make(program::UpdateAt::kOwner);
  auto keep = std::make_shared<std::vector<double>>(3, 9.0);
  variables_->overwrite(
      slice(kBias), {reinterpret_cast<const std::byte*>(keep->data()), 3 * sizeof(double), keep});
  EXPECT_TRUE(is_all(kBias, 9));
}

}  // namespace
}  // namespace autodist::exec
