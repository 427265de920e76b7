// Trials that count: after its first steps a training goes on under several plans in turn, each
// step a step of the training, and keeps the fastest (job/plan_trials.h). They add up in the same
// order (program/sums.h), so that no bit of it depends on the clock.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/job/plan_trials.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/strategy/strategy.h"

namespace autodist::job {

// What a search has found that is worth a trial, at the chief: first the search's answer, then, if
// that is another, the best builder's.
struct Rivals {
  struct Plan {
    std::string name;
    strategy::Strategy strategy;
    Seconds predicted;  // of a step
  };
  std::vector<Plan> plans;
  std::size_t reference = 0;  // which one of the first two the others are compared with
};

class CountedTrials {
 public:
  // `rivals` is the chief's, others pass none. The job has done `step` steps, and trains under the
  // first of them.
  CountedTrials(JoinedJob& job, Rivals rivals, std::int64_t step);

  // Before every step, with its number. Whether all ranks meet before it.
  bool is_due(std::int64_t step);

  // What the chief says when they have met: how many steps the next block has, 0 when it is over;
  // and which plan that is, where it is another than the one that runs.
  struct Decision {
    std::int64_t steps = 0;
    std::optional<strategy::Strategy> strategy;
    std::string name = "";  // of the plan
  };
  Decision decide();
  // At every rank: the plan was taken, or the one before goes on; false when trials are over.
  bool begin_block(std::int64_t step, std::int64_t steps);
  // At every rank: the change was refused, because of what the loop has done between two steps, and
  // is asked for again before the next one; false when that was often enough.
  bool put_off(std::int64_t step);

  // What was measured, as lines that end; nothing where nothing was.
  [[nodiscard]] std::string lines() const;

 private:
  [[nodiscard]] bool make_trials();
  void end_block();

  JoinedJob& job_;
  Rivals rivals_;
  std::int64_t due_;                  // before this step
  std::int64_t timed_from_;           // steps before it are not measured
  int refusals_ = 0;                  // in a row
  std::optional<PlanTrials> trials_;  // at the chief, from the first meeting on
  std::size_t runs_ = 0;              // which plan
  std::size_t decided_ = 0;           // and which one is next
  std::int64_t block_ = 0;            // measured steps of a block
  bool measured_ = false;             // the block that runs
  Seconds timed_since_;
  Seconds first_;  // when the first block began
};

}  // namespace autodist::job
