#include "autodist/job/torch/plan_replay.h"

#include <utility>

namespace autodist::job {

PlanReplay::PlanReplay(strategy::StrategyHistory history, std::int64_t step)
    : history_(std::move(history)), due_(step) {}

PlanSequence::Decision PlanReplay::decide() {
  decided_ = strategy::entry_at(history_, due_);
  Decision decision;
  if (decided_ + 1 < history_.size()) decision.steps = history_[decided_ + 1].step - due_;
  if (decided_ != runs_) decision.strategy = history_[decided_].strategy;
  decision.name = history_[decided_].name;
  return decision;
}

bool PlanReplay::begin_block(std::int64_t step, std::int64_t steps) {
  runs_ = decided_;
  due_ = step + steps;
  return steps > 0;
}

bool PlanReplay::put_off(std::int64_t step, const Error& why) {
  fail(why.code(), "plans: from step {} on another one is due, which cannot be taken: {}", step,
       why.what());
}

}  // namespace autodist::job
