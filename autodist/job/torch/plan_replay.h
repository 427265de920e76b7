// A training that repeats the plans of another, step by step.

#pragma once

#include <string>

#include "autodist/job/torch/plan_sequence.h"

namespace autodist::job {

class PlanReplay final : public PlanSequence {
 public:
  // `history` is the chief's, others pass none. The job has done `step` steps, and runs under the
  // history's first strategy.
  PlanReplay(strategy::StrategyHistory history, std::int64_t step);

  bool is_due(std::int64_t step) override { return step == due_; }
  Decision decide() override;
  bool begin_block(std::int64_t step, std::int64_t steps) override;
  // Throws: under another plan the step would not be that one.
  bool put_off(std::int64_t step, const Error& why) override;
  [[nodiscard]] std::string lines() const override { return ""; }

 private:
  strategy::StrategyHistory history_;
  std::int64_t due_;  // before this step
  std::size_t runs_ = 0;
  std::size_t decided_ = 0;
};

}  // namespace autodist::job
