// Casts whole gradients on the device that they are on, to the elements that exec/codec.h makes of
// them on the host.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include "autodist/program/compression.h"

namespace autodist::exec {

// The elements of encode() without a residual, in the gradient's shape, by ops on the current
// queue; of NaN some NaN. REQUIRES: kFp16 or kBf16, a gradient of float or double.
torch::Tensor cast_elements(program::Codec codec, const torch::Tensor& gradient);

}  // namespace autodist::exec
