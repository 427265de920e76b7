// Element types of the two worlds.
//
// Opt-in: includes torch through capture/training_step.h.

#pragma once

#include <string>

#include "autodist/base/dtype.h"
#include "autodist/capture/training_step.h"

namespace autodist {

torch::ScalarType scalar_type_of(DType dtype);
// Throws Error(kUsage) for a type that AutoDist lacks.
DType dtype_of(torch::ScalarType type);

// "f32 [64, 3, 7, 7]", for messages.
std::string describe(const torch::Tensor& tensor);

}  // namespace autodist
