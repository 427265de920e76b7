// What a rank goes on from, beside its variables: of a checkpoint, or of the plan before.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <future>
#include <optional>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/ir/loss_scaling.h"

namespace autodist::exec {

// Tensors that are not here yet, for any thread to wait for; get() throws why they do not come.
using LaterTensors = std::shared_future<std::vector<NamedTensor>>;

struct RankState {
  // The state of update rules, of their variable's shape, named "<variable>.<state>"; empty: as
  // rules begin. Elements that another rank holds have no meaning.
  std::vector<NamedTensor> rules;
  // By compression: "<variable>.owed" of this rank's gradients, "<variable>.owed_average" of the
  // averages that it owns, "<variable>.factor" of what PowerSGD goes on from. What is missing is
  // owed nothing.
  std::vector<NamedTensor> owed;
  std::optional<ir::LossScale> scale = {};
  EarlierTrace trace = {};
};

}  // namespace autodist::exec
