#include "autodist/exec/step_news.h"

#include <gtest/gtest.h>

#include "autodist/exec/rank_slices.h"
#include "autodist/exec/testing/small_steps.h"

namespace autodist::exec {
namespace {

using testing::kBias;
using testing::kWide;

// Rank 0 of a job whose link is never started: nothing here is posted.
class StepNewsTest : public ::testing::Test {
 protected:
  void make(std::uint32_t ranks) {
    testing::Plan plan;
    plan.ranks = ranks;
    const auto graph = testing::two_layers(ir::default_rule(ir::Rule::kSgd));
    program_ = testing::program_of(graph, plan);
    bindings_.variables = testing::initial_values(*graph, 7);
    const RankContext rank{*program_, kSelf, options_, signal_, trace_};
    slices_ = std::make_unique<RankSlices>(rank, bindings_);
    link_ = std::make_unique<Link>(rank);
    calls_ = std::make_unique<Calls>(*program_, kSelf, 0, Seconds{5}, signal_, CallPeers{});
    small_collectives_ = std::make_unique<SmallCollectives>(*program_, kSelf, signal_, *calls_,
                                                            [](auto, auto, auto, const auto&) {});
    news_ = std::make_unique<StepNews>(rank, slices_->variables, *small_collectives_, *link_);
  }
  [[nodiscard]] program::SliceId slice(ir::VariableId variable) const {
    return program_->plan(variable).slices.front();
  }

  static constexpr program::Rank kSelf{0};
  SteadyClock clock_;
  TraceRecorder trace_{clock_, kSelf, false};
  RunnerOptions options_;
  Signal signal_;
  std::shared_ptr<const program::Program> program_;
  capture::Bindings bindings_;
  std::unique_ptr<RankSlices> slices_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<SmallCollectives> small_collectives_;
  std::unique_ptr<StepNews> news_;
};

TEST_F(StepNewsTest, TheSumsRideOnTheFirstSliceThatAllReplicasShare) {
  make(2);
  const auto sums = news_->job_sums().open(0);
  news_->add_sums({6.0}, 4);
  EXPECT_EQ(decode_rider(news_->rider_of(program::SliceId(0))).sums,
            (std::vector<double>{4.0, 6.0}));
  EXPECT_EQ(news_->rider_of(program::SliceId(1)), "");
  news_->end_step(0);
  news_->take_sums(program::SliceId(1), 0, {1.0, 1.0});
  EXPECT_FALSE(sums->known()) << "another slice's result says nothing of them";
  news_->take_sums(program::SliceId(0), 0, {8.0, 10.0});
  ASSERT_TRUE(sums->known());
  EXPECT_EQ(sums->samples(), 8);
  EXPECT_EQ(sums->sums(), std::vector<double>{10.0});
}

TEST_F(StepNewsTest, OfARankAloneTheSumsAreKnownWithTheStep) {
  make(1);
  const auto sums = news_->job_sums().open(0);
  news_->add_sums({6.0}, 4);
  EXPECT_FALSE(sums->known());
  news_->end_step(0);
  EXPECT_TRUE(sums->known());
}

TEST_F(StepNewsTest, OptionsAreSaidUntilTheyAreAsDeclaredAndValuesOnce) {
  make(2);
  const auto said = [&](ir::VariableId variable) {
    return decode_news(*program_->graph, decode_rider(news_->rider_of(slice(variable))).news);
  };
  news_->set_options(kBias, {{"lr", 0.25}});
  news_->change({{kWide, 17}});
  EXPECT_EQ(said(kBias).at(kBias).options.at("lr"), 0.25);
  EXPECT_EQ(said(kWide).at(kWide).values, 17U);
  news_->end_step(0);
  EXPECT_EQ(said(kBias).count(kBias), 1U);
  EXPECT_EQ(said(kWide).count(kWide), 0U);
  news_->set_options(kBias, {});
  EXPECT_EQ(news_->rider_of(slice(kBias)), "");
}

}  // namespace
}  // namespace autodist::exec
