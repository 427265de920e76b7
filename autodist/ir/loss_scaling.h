// Loss scaling, so that gradients of 16 bits do not underflow: the backward pass starts from
// scale * loss, gradients are divided by the scale before they are used, and a step in which one of
// any rank is not finite is skipped by all ranks. The scale follows from that, as that of
// torch.cuda.amp.GradScaler (Micikevicius et al. 2018, "Mixed precision training", section 3.2).
//
// In a Program it is a declared barrier (AgreeFinite): no variable is updated before every rank has
// said whether its gradients are finite.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// GradScaler's arguments and their defaults. A fixed scale has both factors 1.
struct LossScaling {
  float scale = 65536;
  double growth = 2;
  double backoff = 0.5;
  std::int64_t interval = 2000;  // steps without overflow after which the scale grows

  friend bool operator==(const LossScaling&, const LossScaling&);
};

// "dynamic", "dynamic:scale=1024,growth=2,backoff=0.5,interval=100", or a number, a fixed scale.
// Throws Error(kUsage), also for numbers out of range: scale > 0, growth >= 1, 0 < backoff <= 1,
// interval >= 1.
LossScaling parse_loss_scaling(const std::string& text);
std::string to_string(const LossScaling& scaling);  // parses back to the same

// What a rank knows between two steps.
struct LossScale {
  float scale = 65536;          // of the next step
  std::int64_t good_steps = 0;  // without overflow, since the scale changed
  std::int64_t skipped = 0;     // steps so far

  friend bool operator==(const LossScale&, const LossScale&);
};
LossScale first_scale(const LossScaling& scaling);
// After a step with or without overflow: GradScaler.update(), bit for bit. A scale that would not
// be finite does not grow.
LossScale next_scale(const LossScaling& scaling, LossScale scale, bool overflow);

// Of the input that holds the scale: the last of a graph's, where it scales the loss.
inline constexpr const char* kLossScaleInput = "loss_scale";
bool scales_loss(const Graph& graph);

}  // namespace autodist::ir
