// Memory that an op leaves as it was (torch.empty), while a step is recorded: whether the host has
// written there since, without an op. Private to capture.

#pragma once

#include <torch/types.h>

namespace autodist::capture {

// Fills the tensor's memory with a pattern.
void leave_unwritten(const at::Tensor& tensor);

// Whether the pattern is still in all of it. False where that cannot be told: there is none in a
// tensor without memory, and in less than eight bytes of 8-bit integers.
bool is_unwritten(const at::Tensor& tensor);

}  // namespace autodist::capture
