// What one tensor of a batch looks like, on the command line: for models that come as a file and
// say nothing of their inputs.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::app {

// "float32:3,224,224" (each sample's sizes) or "int64:20:30522" (whole numbers below a bound);
// "int64::10" is one number per sample.
struct InputSpec {
  torch::ScalarType dtype = torch::kFloat32;
  std::vector<std::int64_t> sizes;
  std::int64_t below = 0;
};

// Throws Error(kUsage) that shows the form.
InputSpec parse_input_spec(const std::string& text);

// Random samples: standard normal, or uniform whole numbers. The same for the same seed.
Batch random_samples(const std::vector<InputSpec>& inputs, std::int64_t samples,
                     std::uint64_t seed);

}  // namespace autodist::app
