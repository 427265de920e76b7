// What all ranks of a job have agreed to do about a captured step.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "autodist/job/torch/captured.h"
#include "autodist/passes/pipeline.h"
#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::job {

struct StepPlan {
  strategy::Strategy strategy;
  std::shared_ptr<const program::Program> program;
  // How the program was made of the strategy, and where that came from.
  passes::Options passes;
  std::string chosen_by;
  std::uint32_t trials = 0;  // each a generation of the transport, before the training's
};

// By all ranks at the same point: the chief's choice, rewritten by every rank, and compared. Throws
// Error(kUsage) where they arrive at different Programs, and as choose_strategy() and
// search_together() do.
StepPlan plan_step(JoinedJob& job, const Captured& step);

}  // namespace autodist::job
