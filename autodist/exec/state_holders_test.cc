#include "autodist/exec/state_holders.h"

#include <gtest/gtest.h>

namespace autodist::exec {
namespace {

using Ranks = std::vector<program::Rank>;

program::Slice slice_of_two(program::UpdateAt update_at) {
  program::Slice slice;
  slice.pieces = {{program::ShardId(0), 0, 64}};
  slice.dtype = DType::kFloat32;
  slice.owner = program::Rank(1);
  slice.members = {program::Rank(0), program::Rank(1)};
  slice.exchange.order = program::Versions{0, update_at};
  return slice;
}

TEST(StateHolders, AnOwnerThatUpdatesHasTheParametersAndTheRulesState) {
  const program::Slice slice = slice_of_two(program::UpdateAt::kOwner);
  EXPECT_EQ(holders_of(slice, SliceState::kParameters), Ranks{program::Rank(1)});
  EXPECT_EQ(holders_of(slice, SliceState::kRule), Ranks{program::Rank(1)});
  EXPECT_EQ(holders_of(slice, SliceState::kOwed), Ranks{});
  EXPECT_EQ(holders_of(slice, SliceState::kOwedAverage), Ranks{});
}

TEST(StateHolders, WhereEveryRankUpdatesNoSliceHasARulesState) {
  EXPECT_EQ(holders_of(slice_of_two(program::UpdateAt::kEveryRank), SliceState::kRule), Ranks{});
}

TEST(StateHolders, WithErrorFeedbackContributorsOweAndOwnersThatSendAverages) {
  for (const program::UpdateAt at : {program::UpdateAt::kOwner, program::UpdateAt::kEveryRank}) {
    program::Slice slice = slice_of_two(at);
    const program::Compression codec{program::Codec::kFp16, true};
    const bool averages = at == program::UpdateAt::kEveryRank;
    slice.exchange.payload =
        program::Dense{program::Route::kDirect, codec, averages ? codec : program::Compression{}};
    EXPECT_EQ(holders_of(slice, SliceState::kOwed), slice.members);
    EXPECT_EQ(holders_of(slice, SliceState::kOwedAverage),
              at == program::UpdateAt::kOwner ? Ranks{} : Ranks{program::Rank(1)});
  }
}

TEST(StateHolders, EachStateHasATopicOfItsOwn) {
  EXPECT_EQ(topic_of(SliceState::kParameters), Topic::kParameters);
  EXPECT_EQ(topic_of(SliceState::kRule), Topic::kStates);
  EXPECT_EQ(topic_of(SliceState::kOwed), Topic::kOwedGradients);
  EXPECT_EQ(topic_of(SliceState::kOwedAverage), Topic::kOwedAverages);
  EXPECT_STREQ(suffix_of(SliceState::kOwedAverage), "owed_average");
}

}  // namespace
}  // namespace autodist::exec
