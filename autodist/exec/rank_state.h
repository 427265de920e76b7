// What a rank goes on from, beside its variables: of a checkpoint, or of the plan before.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <future>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/exec/trace_recorder.h"

namespace autodist::exec {

// Tensors that still come, from any thread; or why they do not.
using LaterTensors = std::shared_future<std::vector<NamedTensor>>;

struct RankState {
  // Of the update rules, of their variable's shape, named "<variable>.<state>". What is another
  // rank's of it has no meaning.
  std::vector<NamedTensor> rules;
  // By compression: "<variable>.owed" of this rank's gradients, "<variable>.owed_average" of the
  // averages that it owns, "<variable>.factor" of what PowerSGD goes on from.
  std::vector<NamedTensor> owed;
  EarlierTrace trace;
};

}  // namespace autodist::exec
