// Applies an update rule to whole tensors, on the device that they are on: by the formulas of the
// host's kernels (update_formulas.h), op by op, so that the bits are the host's; every op is one
// call for several variables.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <vector>

#include "autodist/exec/optimizer_kernels.h"

namespace autodist::exec {

// Whether the rule has formulas for tensors: all but FTRL, LAMB and users' rules.
bool updates_tensors(const ir::UpdateRule& rule);

// As apply() of optimizer_kernels.h, in place, of several variables that follow one rule and have
// one type. Gradients have the parameters' shapes and device; `states` are by name, then by
// variable. The ops go to the current queue, and what they need for themselves is allocated on it:
// some five times the parameters.
// REQUIRES: updates_tensors(update.rule).
void apply_to_tensors(const UpdateStep& update, const std::vector<torch::Tensor>& parameters,
                      const std::vector<torch::Tensor>& gradients,
                      const std::vector<std::vector<torch::Tensor>>& states);

// The accumulators of a whole variable in its shape on a device, and back; both block.
std::vector<torch::Tensor> tensors_of(const UpdateState& state, torch::IntArrayRef sizes,
                                      torch::Device device);
void copy_to_host(const std::vector<torch::Tensor>& states, UpdateState& state);

}  // namespace autodist::exec
