#include "autodist/exec/topic.h"

#include <fmt/format.h>

namespace autodist::exec {

static_assert(static_cast<int>(Topic::kMove) == 55, "docs/formats/wire.md has the numbers");
static_assert(static_cast<std::size_t>(Topic::kMove) < comm::kKindLimit);

std::string name_of(Topic topic, comm::MessageId id) {
  switch (topic) {
    case Topic::kContribution:
      return fmt::format("contribution of slice {}", id);
    case Topic::kResult:
      return fmt::format("result of slice {}", id);
    case Topic::kSums:
    case Topic::kLambSums:
      return fmt::format("norm of slice {}", id);
    case Topic::kWholeSum:
      return fmt::format("norm of variable {}", id);
    case Topic::kFlag:
      return "flag of finite gradients";
    case Topic::kAsk:
    case Topic::kRows:
    case Topic::kResultAndRows:
      return fmt::format("rows of slice {}", id);
    case Topic::kTransfer:
      return fmt::format("transfer {}", id);
    case Topic::kStepSums:
      return "sums of a step";
    case Topic::kStep:
      return "summary of a step";
    case Topic::kChanges:
    case Topic::kChanged:
      return "changes of variables";
    case Topic::kStatesWanted:
    case Topic::kStates:
      return "state of update rules";
    case Topic::kOwedGradients:
    case Topic::kOwedAverages:
    case Topic::kOwed:
      return "what compression owes";
    case Topic::kParametersWanted:
    case Topic::kRowsWanted:
    case Topic::kStagesWanted:
    case Topic::kParameters:
      return "parameters";
    case Topic::kBuffers:
    case Topic::kStatistics:
    case Topic::kAllStatistics:
      return "buffers";
    case Topic::kGathering:
    case Topic::kShared:
      return "values between steps";
    case Topic::kMet:
    case Topic::kParted:
    case Topic::kFetched:
    case Topic::kDone:
      return "word that it has come so far";
    case Topic::kOutcome:
    case Topic::kSaveWanted:
    case Topic::kSaveAnswered:
    case Topic::kSnapshot:
      return "word about a checkpoint";
    case Topic::kCalled:
    case Topic::kEnded:
      return "word about a call";
    case Topic::kPlan:
    case Topic::kPlanned:
      return "word about the next plan";
    case Topic::kMove:
      return fmt::format("move {} to the next plan", id);
  }
  return fmt::format("message {}.{}", static_cast<int>(topic), id);  // of no kind that is known
}

}  // namespace autodist::exec
