// What all ranks of a job have agreed to do about a captured step.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/comm/link_probe.h"
#include "autodist/job/torch/captured.h"
#include "autodist/job/torch/counted_trials.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/planning.h"
#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::job {

struct StepPlan {
  [[nodiscard]] bool has_library() const { return library != comm::CollectiveLibrary::kNone; }

  strategy::Strategy strategy;
  std::shared_ptr<const program::Program> program;
  // How the program was made of the strategy, and where that came from.
  passes::Options passes;
  std::string chosen_by;
  std::string name;  // of the plan, at the chief; a plan that is gone back to has the same again
  std::uint32_t trials = 0;  // each a generation of the transport, before the training's
  std::optional<comm::LinkFigures> links;  // as measured for it, at the chief
  std::optional<Rivals> rivals;            // that trials which count compare it with
  // That all-reduces can have, on the devices of all ranks.
  comm::CollectiveLibrary library = comm::CollectiveLibrary::kNone;
};

// By all ranks at the same point: the chief's choice, rewritten by every rank, and compared. Throws
// Error(kUsage) where they arrive at different Programs, and as choose_strategy() and
// search_together() do.
StepPlan plan_step(JoinedJob& job, const Captured& step);

// Of a file (strategy::read_history), on the machines that the job has now.
strategy::StrategyHistory history_of(const JoinedJob& job, const std::string& file);

// Who starts the job again after a loss begins with this one.
void keep_plan(JoinedJob& job, const Captured& step, const strategy::Strategy& strategy);

// A strategy for a step, with the sizes of slices and windows that the plan's links ask for. Throws
// as choose_strategy() does.
strategy::Strategy choose_by_chief(JoinedJob& job, const Captured& step, const StepPlan& plan,
                                   const planning::StrategyRequest& request);

}  // namespace autodist::job
