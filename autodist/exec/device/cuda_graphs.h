// CUDA graphs for runs of ops, where the build has headers of CUDA.

#pragma once

namespace autodist::exec {

// Before the first Runner: GPUs record their steps and launch them (replay.h). Throws
// Error(kEnvironment) where the build cannot.
void record_cuda_graphs();

}  // namespace autodist::exec
