// What all-reduces by a library cost in this job, for a search that may choose them.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include "autodist/job/torch/joined_job.h"
#include "autodist/sim/calibration.h"

namespace autodist::job {

// By all ranks at the same point: connects the library, and measures it. Empty where the chief does
// not want it, where what ranks say is encrypted, which a library's sums are not, where this build
// has no library, and where the library sums on devices, whose collectives are priced from tables.
// `device`: this rank's. Throws as make_collectives() does.
sim::Calibration measured_library(JoinedJob& job, const torch::Device& device, bool wanted);

}  // namespace autodist::job
