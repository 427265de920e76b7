// Who is to blame for a loss or a gradient that is not finite.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/exec/replay.h"
#include "autodist/ir/graph.h"

namespace autodist::exec {

// What to do about it, behind what and where.
constexpr char kDiverges[] =
    "The training diverges: take a smaller lr, or clip=1, in the optimizer; --on-nonfinite ignore "
    "(in a program on_nonfinite) goes on all the same.";

// No infinity and no NaN in a dense or sparse tensor.
bool is_finite(const torch::Tensor& tensor);

// The first variable that is not finite, else the first op that makes something which is not, in
// words. Runs the step once more up to `last`, on the same rows and random numbers; buffers that
// the step writes are written again. REQUIRES: the step `replay` was in is over.
std::string first_nonfinite(Replay& replay, const Batch& rows, std::uint64_t seed, ir::OpId last);

}  // namespace autodist::exec
