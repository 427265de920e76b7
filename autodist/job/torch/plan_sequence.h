// Who decides under which plans a training goes on, in turn: the chief, at steps before which all
// ranks meet.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "autodist/base/error.h"
#include "autodist/strategy/strategy.h"

namespace autodist::job {

class PlanSequence {
 public:
  PlanSequence() = default;
  virtual ~PlanSequence() = default;
  PlanSequence(const PlanSequence&) = delete;
  PlanSequence& operator=(const PlanSequence&) = delete;

  // Before every step, with its number. Whether all ranks meet before it.
  virtual bool is_due(std::int64_t step) = 0;

  // What the chief says when they have met: after how many steps they meet again, 0 for never; and
  // the plan, where it is another than the one that runs.
  struct Decision {
    std::int64_t steps = 0;
    std::optional<strategy::Strategy> strategy;
    std::string name = "";  // of the plan
  };
  virtual Decision decide() = 0;
  // At every rank: the plan was taken, or the one before goes on; false when nothing more comes.
  virtual bool begin_block(std::int64_t step, std::int64_t steps) = 0;
  // At every rank: the change was refused, because of what the loop has done between two steps.
  // True: it is asked for again before the next one; false: nothing more comes. May throw.
  virtual bool put_off(std::int64_t step, const Error& why) = 0;

  // What there is to say at the end, as lines that end; nothing where there is nothing.
  [[nodiscard]] virtual std::string lines() const = 0;
};

}  // namespace autodist::job
