// How fast a device and the host's pinned memory copy to each other.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include "autodist/base/units.h"

namespace autodist::exec {

// Bytes per second; of both directions at once, their sum.
struct CopyRates {
  double to_device = 0;
  double to_host = 0;
  double both = 0;
};

// The best of several copies of `size`. REQUIRES: a device that is not a CPU.
CopyRates measure_copies(torch::Device device, Bytes size);

}  // namespace autodist::exec
