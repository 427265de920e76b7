#include "autodist/exec/owner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/rider.h"
#include "autodist/ir/optimizer.h"

namespace autodist::exec {
namespace {

constexpr std::int64_t kElements = 5;
using Numbers = std::vector<double>;

comm::Payload payload_of(const Numbers& numbers) {
  auto keep = std::make_shared<Numbers>(numbers);
  const auto* data = reinterpret_cast<const std::byte*>(keep->data());
  return {data, numbers.size() * sizeof(double), keep};
}

// One variable of five elements in one slice, owned by rank 0 and contributed to by three ranks.
class OwnerTest : public ::testing::Test {
 protected:
  void make(program::UpdateAt update_at, double max_norm = 0) {
    auto graph = std::make_shared<ir::Graph>();
    ir::TensorType type;
    type.dtype = DType::kFloat64;
    type.sizes = {{0, kElements}};
    graph->values = {{ir::StorageId(0), 0, ir::SlotId(0), type}};
    ir::Variable variable;
    variable.name = "w";
    variable.gradient = ir::ValueId(0);
    variable.update = ir::default_rule(ir::Rule::kSgd);
    variable.update.options["lr"] = 1;
    graph->variables = {variable};
    graph->reduction = reduction_;
    program_.variables.resize(1);
    if (max_norm != 0) {
      graph->clips = {{max_norm, {ir::VariableId(0)}}};
      program_.variables[0].clip = program::ClipId(0);
    }
    program_.graph = graph;
    program_.ranks.resize(3);
    program_.shards = {{ir::VariableId(0), "w", 0, 0, kElements, kElements}};
    program::Slice slice;
    slice.pieces = {{program::ShardId(0), 0, kElements}};
    slice.dtype = DType::kFloat64;
    slice.members = {program::Rank(0), program::Rank(1), program::Rank(2)};
    slice.exchange.order = program::Versions{0, update_at};
    std::get<program::Dense>(slice.exchange.payload).delivery = delivery_;
    if (!synchronous_) slice.exchange.order = program::Asynchronous{};
    program_.slices = {slice};
    program_.variables[0].slices = {program::SliceId(0)};
    if (scaling_) {
      const program::Stream stream{program::StreamKind::kCompute,
                                   {program::AgreeFinite{*scaling_}}};
      program_.roles = {{slice.members, {stream}}};
      for (std::uint32_t rank : {0, 1, 2}) program_.ranks[rank].replica = rank;
    }
    scaler_ = std::make_unique<LossScaler>(scaling_, 0, signal_);
    job_ = std::make_unique<protocol::Job>(program_);
    plan_ = std::make_unique<NormPlan>(program_, *job_);
    norms_ = std::make_unique<Norms>(job_->norms.parts, signal_);
    owner_ = std::make_unique<Owner>(
        RankContext{program_, program::Rank(0), options_, signal_, trace_}, *job_,
        std::vector<const std::byte*>{reinterpret_cast<const std::byte*>(initial_.data())}, *plan_,
        *norms_, *scaler_);
  }

  void keep(const CombinedSlice& combined) {
    samples_ = combined.samples;
    rider_ = combined.rider;
    sums_ = combined.sums;
    last_ = combined.payload;
    if (last_.data == nullptr) return;
    const auto* numbers = reinterpret_cast<const double*>(last_.data);
    result_.assign(numbers, numbers + kElements);
  }
  void add(std::uint32_t from, std::int64_t samples, const Numbers& gradient,
           std::uint64_t step = 0, const Rider& rider = {}) {
    owner_->keep(program::SliceId(0), step, program::Rank(from), samples,
                 samples == 0 ? comm::Payload{} : payload_of(gradient), encode(rider));
  }
  void merge(std::uint64_t step = 0, std::uint32_t from = 0) {
    keep(owner_->merge(program::SliceId(0), step, program::Rank(from)));
  }
  void update(std::uint64_t step = 0) { keep(owner_->update(program::SliceId(0), step)); }

  void decide(std::uint64_t step, bool overflow) {
    const MutexLock lock(signal_);
    scaler_->decide(step, overflow);
  }

  // What a rank says of the one variable.
  [[nodiscard]] std::string news(const VariableNews& of_w) const {
    return encode_news(*program_.graph, {{ir::VariableId(0), of_w}});
  }

  ir::Reduction reduction_ = ir::Reduction::kMean;
  bool synchronous_ = true;
  program::Delivery delivery_ = {};
  std::optional<ir::LossScaling> scaling_;
  Numbers initial_ = {10, 20, 30, 40, 50};
  program::Program program_;
  RunnerOptions options_;
  SteadyClock clock_;
  TraceRecorder trace_{clock_, program::Rank(0), false};
  Signal signal_;
  std::unique_ptr<protocol::Job> job_;
  std::unique_ptr<NormPlan> plan_;
  std::unique_ptr<Norms> norms_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<Owner> owner_;
  std::int64_t samples_ = -1;
  comm::Payload last_;
  Numbers result_;
  std::string rider_;
  std::vector<SquaredSums> sums_;
};

TEST_F(OwnerTest, WeighsByTheSamplesBehindEachGradient) {
  make(program::UpdateAt::kEveryRank);
  add(2, 1, {4, 4, 4, 4, 8});
  add(0, 3, {0, 4, 8, 12, 0});
  add(1, 0, {});
  merge();
  EXPECT_EQ(result_, (Numbers{1, 4, 7, 10, 2}));
  EXPECT_EQ(samples_, 4);
}

TEST_F(OwnerTest, AnAsynchronousOneAppliesTheContributionThatItIsTold) {
  synchronous_ = false;
  make(program::UpdateAt::kOwner);
  add(2, 3, {1, 0, 0, 0, 0});
  add(0, 1, {0, 1, 0, 0, 0});
  merge(0, 2);
  const Numbers after_one = result_;
  EXPECT_LT(after_one[0], initial_[0]);
  EXPECT_EQ(after_one[1], initial_[1]);
  merge(0, 0);
  EXPECT_EQ(result_[0], after_one[0]);
  EXPECT_LT(result_[1], initial_[1]);
  add(2, 0, {}, 1);  // no samples: it only wants to know
  merge(1, 2);
  EXPECT_EQ(samples_, 0);
  EXPECT_THROW(merge(1, 0), InternalError) << "rank 0 has not contributed to step 1";
  EXPECT_THROW(add(2, 1, {1, 1, 1, 1, 1}, 1), InternalError);
}

TEST_F(OwnerTest, AddsWhereTheLossIsASum) {
  reduction_ = ir::Reduction::kSum;
  make(program::UpdateAt::kEveryRank);
  for (std::uint32_t rank : {0, 1}) add(rank, 5, {1, 2, 3, 4, 5});
  add(2, 1, {1, 1, 1, 1, 1});
  merge();
  EXPECT_EQ(result_, (Numbers{3, 5, 7, 9, 11}));
}

TEST_F(OwnerTest, AppliesTheRuleToItsMasterCopyStepByStep) {
  make(program::UpdateAt::kOwner);
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, {1, 2, 3, 4, 5}, step);
    merge(step);
  }
  // Thirds of one do not add up to it exactly.
  for (std::size_t i = 0; i < result_.size(); ++i) EXPECT_NEAR(result_[i], 7.0 * (i + 1), 1e-12);
}

TEST_F(OwnerTest, TheOrderOfArrivalDoesNotChangeABit) {
  std::vector<std::uint32_t> order = {0, 1, 2};
  const std::vector<Numbers> gradients = {
      {0.1, 1e16, 3, -7e-9, 1}, {0.2, 1, 3e8, 7e-9, 1e-30}, {0.3, -1e16, 1e-8, 1.0 / 3, -1}};
  Numbers expected;
  do {
    make(program::UpdateAt::kEveryRank);
    for (const std::uint32_t rank : order) add(rank, rank + 1, gradients[rank]);
    merge();
    if (expected.empty()) expected = result_;
    EXPECT_EQ(result_, expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(OwnerTest, TheNextStepMayArriveWhileThisOneIsIncomplete) {
  make(program::UpdateAt::kOwner);
  add(0, 1, {1, 1, 1, 1, 1}, 0);
  add(0, 1, {2, 2, 2, 2, 2}, 1);
  add(1, 1, {1, 1, 1, 1, 1}, 0);
  add(1, 1, {2, 2, 2, 2, 2}, 1);
  add(2, 1, {2, 2, 2, 2, 2}, 1);
  add(2, 1, {1, 1, 1, 1, 1}, 0);
  merge(0);
  EXPECT_NEAR(result_[0], 9, 1e-12);
  merge(1);
  EXPECT_NEAR(result_[0], 7, 1e-12);
}

TEST_F(OwnerTest, AStepWithoutSamplesUpdatesNothing) {
  make(program::UpdateAt::kOwner);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 0, {});
  merge();
  EXPECT_EQ(result_, initial_);
  EXPECT_EQ(samples_, 0);
}

TEST_F(OwnerTest, WhatIsStillReadIsNotWritten) {
  make(program::UpdateAt::kOwner);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, {1, 1, 1, 1, 1}, 0);
  merge();
  const comm::Payload on_its_way = last_;
  const Numbers before = result_;
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, {1, 1, 1, 1, 1}, 1);
  merge(1);
  const auto* numbers = reinterpret_cast<const double*>(on_its_way.data);
  EXPECT_EQ(Numbers(numbers, numbers + kElements), before);
  EXPECT_NE(result_, before);
}

// A rank that has not come to the change asks for the version that it follows.
TEST_F(OwnerTest, AChangeDoesNotReachWhoAsksForTheVersionBeforeIt) {
  delivery_ = program::Delivery::kAsked;
  make(program::UpdateAt::kOwner);
  const auto parameters = [&] {
    const comm::Payload payload = owner_->parameters(program::SliceId(0));
    const auto* numbers = reinterpret_cast<const double*>(payload.data);
    return Numbers(numbers, numbers + kElements);
  };
  const Numbers changed = {1, 2, 3, 4, 5};
  owner_->reload(ir::VariableId(0), reinterpret_cast<const std::byte*>(changed.data()));
  EXPECT_EQ(parameters(), initial_);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, {1, 1, 1, 1, 1});
  merge();
  EXPECT_EQ(parameters(), (Numbers{0, 1, 2, 3, 4}));
}

TEST_F(OwnerTest, ASliceIsClippedByItsNorm) {
  make(program::UpdateAt::kOwner, /*max_norm=*/5);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, rank == 0 ? 1 : 0, {6, 8, 0, 0, 0});
  merge();
  EXPECT_TRUE(result_.empty());
  ASSERT_EQ(sums_, (std::vector<SquaredSums>{{100, 0}}));
  norms_->put(0, {NormId(0), 0}, sums_[0]);
  update();
  EXPECT_NEAR(result_[0], 10 - 3, 1e-5);
  EXPECT_NEAR(result_[1], 20 - 4, 1e-5);
}

TEST_F(OwnerTest, AStepThatAllSkipUpdatesNothing) {
  scaling_ = ir::LossScaling();
  make(program::UpdateAt::kOwner);
  ASSERT_EQ(job_->norms.parts[job_->norms.flags->value], 3U);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, {1, 1, 1, 1, 1}, 0);
  merge();
  EXPECT_TRUE(result_.empty()) << "it waits for the flags of all";
  decide(0, /*overflow=*/true);
  update();
  EXPECT_EQ(result_, initial_);
  EXPECT_EQ(samples_, 0);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, {1, 1, 1, 1, 1}, 1);
  merge(1);
  decide(1, /*overflow=*/false);
  update(1);
  EXPECT_EQ(result_, (Numbers{9, 19, 29, 39, 49}));
}

TEST_F(OwnerTest, UpdatesByTheOptionsThatComeWithTheContributions) {
  make(program::UpdateAt::kOwner);
  const Numbers ones{1, 1, 1, 1, 1};
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, ones, 0, {news({{{"lr", 4}}, {}}), {}, ""});
  merge();
  EXPECT_NEAR(result_[0], 10 - 4, 1e-12);
  for (std::uint32_t rank : {0, 1, 2}) add(rank, 1, ones, 1);  // as declared again
  merge(1);
  EXPECT_NEAR(result_[0], 10 - 4 - 1, 1e-12);
}

TEST_F(OwnerTest, AddsTheSumsOfItsContributorsInTheOrderOfRanks) {
  make(program::UpdateAt::kOwner);
  const Numbers ones{1, 1, 1, 1, 1};
  add(2, 1, ones, 0, {"", {-1e16}, ""});
  add(0, 1, ones, 0, {"", {1e16, 3}, ""});
  add(1, 0, {}, 0, {});
  merge();
  EXPECT_EQ(decode_rider(rider_).sums, (std::vector<double>{0, 3}));
}

TEST_F(OwnerTest, ContributorsThatDisagreeAreNamedBeforeAnythingIsUpdated) {
  make(program::UpdateAt::kOwner);
  const Numbers ones{1, 1, 1, 1, 1};
  add(0, 1, ones, 0, {news({{}, 7}), {}, ""});
  add(1, 1, ones, 0);
  add(2, 1, ones, 0);
  try {
    merge();
    FAIL() << "rank 0 has changed 'w' alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(
        std::string(error.what())
            .find("'w' is changed (digest 0000000000000007) at rank 0, not changed at rank 1, 2"),
        std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(result_.empty());
}

TEST_F(OwnerTest, AnOwnerThatIsNoMemberTakesTheNewValuesOfTheLowest) {
  make(program::UpdateAt::kOwner);
  const Numbers ones{1, 1, 1, 1, 1};
  const Numbers values{0, 0, 0, 0, 100};
  const std::string bytes(reinterpret_cast<const char*>(values.data()), 5 * sizeof(double));
  add(0, 1, ones, 0, {news({{}, 7}), {}, bytes});
  for (std::uint32_t rank : {1, 2}) add(rank, 1, ones, 0, {news({{}, 7}), {}, ""});
  merge();
  EXPECT_EQ(result_, (Numbers{-1, -1, -1, -1, 99}));
}

TEST_F(OwnerTest, RefusesWhatCannotBe) {
  make(program::UpdateAt::kOwner);
  EXPECT_THROW(add(7, 1, initial_), InternalError) << "no member";
  EXPECT_THROW(add(0, 1, {1, 2}), InternalError) << "wrong size";
  EXPECT_THROW(add(0, 1, initial_, 2), InternalError) << "step out of reach";
  add(0, 1, initial_);
  EXPECT_THROW(add(0, 1, initial_), InternalError) << "twice";
}

}  // namespace
}  // namespace autodist::exec
