#include "autodist/exec/state_holders.h"

#include "autodist/base/check.h"
#include "autodist/exec/codec.h"
#include "autodist/program/loads.h"

namespace autodist::exec {

std::vector<program::Rank> holders_of(const program::Slice& slice, SliceState state) {
  using Ranks = std::vector<program::Rank>;
  switch (state) {
    case SliceState::kParameters:
      return {slice.owner};
    case SliceState::kRule:
      return makes_parameters(slice.exchange) ? Ranks{slice.owner} : Ranks{};
    case SliceState::kOwed:
      return feeds_back(slice) ? slice.members : Ranks{};
    case SliceState::kOwedAverage:
      return feeds_back(slice) && loses_averages(slice) ? Ranks{slice.owner} : Ranks{};
  }
  return {};
}

Topic topic_of(SliceState state) {
  switch (state) {
    case SliceState::kParameters:
      return Topic::kParameters;
    case SliceState::kRule:
      return Topic::kStates;
    case SliceState::kOwed:
      return Topic::kOwedGradients;
    case SliceState::kOwedAverage:
      return Topic::kOwedAverages;
  }
  return Topic::kStates;
}

const char* suffix_of(SliceState state) {
  AD_CHECK(state == SliceState::kOwed || state == SliceState::kOwedAverage) << "nothing is owed";
  return state == SliceState::kOwed ? "owed" : "owed_average";
}

}  // namespace autodist::exec
