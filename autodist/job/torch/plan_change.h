// A job goes on under another plan: who chooses it, how all ranks agree, and what moves
// (program/transition.h). Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "autodist/job/torch/job_steps.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/plan_sequence.h"
#include "autodist/program/transition.h"
#include "autodist/strategy/strategy.h"

namespace autodist::job {

class PlanChanges {
 public:
  // `changed` is called when a step goes on under another plan. Job and steps outlive this.
  PlanChanges(JoinedJob& job, JobSteps& steps, std::function<void(JobStep& step)> changed)
      : job_(job), steps_(steps), changed_(std::move(changed)) {}

  // When the steps have started: what the options and the search say of the plans to come.
  void begin();
  // By all ranks before each step of a job, whose turn it is.
  void meet_where_due();
  // What Session::change_plan() says. REQUIRES: it is that step's turn.
  PlanChange change(std::size_t index, planning::StrategyRequest request,
                    const std::optional<strategy::Strategy>& given);

 private:
  struct Prepared {
    StepPlan next;
    program::Transition moves;
  };
  [[nodiscard]] std::string strategy_of_chief(std::size_t index,
                                              const planning::StrategyRequest& request,
                                              const std::optional<strategy::Strategy>& given);
  void agree(std::size_t index, const program::Program& next);
  Prepared prepare(std::size_t index, exec::Call call, const planning::StrategyRequest& request,
                   const std::optional<strategy::Strategy>& given, const std::string& name);
  void check_library(const JobStep& step) const;
  PlanChange go_on_under(std::size_t index, Prepared change);
  PlanSequence::Decision decide_together();
  void end_sequence();
  void drop_sequence();
  void keep_history();

  JoinedJob& job_;
  JobSteps& steps_;
  std::function<void(JobStep& step)> changed_;
  std::unique_ptr<PlanSequence> sequence_;  // of plans, where there are several
  strategy::StrategyHistory history_;       // at the chief, where it is kept
  std::uint32_t asked_ = 0;                 // for a plan, so often
};

}  // namespace autodist::job
