// The device that a rank computes on, and a model that is brought there.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "autodist/base/environment.h"
#include "autodist/capture/training_step.h"
#include "autodist/cluster/cluster.h"

namespace autodist::job {

// The rank's device as the cluster names it; with `cpu_only` a CPU in the place of each GPU. Where
// CUDA_VISIBLE_DEVICES shows this process one GPU alone, it is that one, whatever its index on the
// machine. Throws Error(kEnvironment) where this process does not have it.
torch::Device rank_device(const cluster::Cluster& cluster, std::uint32_t rank, bool cpu_only,
                          const Environment& environment);

// Parameters and buffers in place, so that whoever holds them sees them there, and the example.
void move_to(const torch::Device& device, TrainingStep& step);

}  // namespace autodist::job
