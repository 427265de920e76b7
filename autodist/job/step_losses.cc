#include "autodist/job/step_losses.h"

namespace autodist::job {

// What a chief that dies in between has written of one is not taken for a loss: the generation is
// gone first, and comes last.
std::optional<double> StepLosses::compare(std::int64_t generation, std::uint64_t series,
                                          std::int64_t step, double loss) {
  Loss& slot = losses_[(series + static_cast<std::uint64_t>(step)) % kRemembered];
  std::optional<double> before;
  const bool is_again = slot.generation >= 0 && slot.generation != generation;
  if (is_again && slot.series == series && slot.step == step) before = slot.loss;
  slot.generation = -1;
  slot.series = series;
  slot.step = step;
  slot.loss = loss;
  slot.generation = generation;
  return before;
}

void StepLosses::forget() {
  for (Loss& each : losses_) each.generation = -1;
}

}  // namespace autodist::job
