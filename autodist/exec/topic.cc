#include "autodist/exec/topic.h"

#include <fmt/format.h>

namespace autodist::exec {

static_assert(static_cast<int>(Topic::kEnded) == 51, "docs/formats/wire.md has the numbers");
static_assert(static_cast<std::size_t>(Topic::kEnded) < comm::kKindLimit);

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
      return fmt::format("rows of slice {}", id);
    case Topic::kTransfer:
      return fmt::format("transfer {}", id);
    case Topic::kStepSums:
    case Topic::kStep:
      return "summary of a step";
    default:
      return fmt::format("note {}.{}", static_cast<int>(topic), id);
  }
}

}  // namespace autodist::exec
