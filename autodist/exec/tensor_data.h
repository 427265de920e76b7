// Torch tensors as plain bytes, and back.
//
// Takes the opt-in training_step.h, and so includes torch.

#pragma once

#include <string>

#include "autodist/capture/training_step.h"
#include "autodist/exec/safetensors.h"

namespace autodist::exec {

// A row-major copy on the host.
TensorData to_data(const NamedTensor& tensor);
// The tensor's own memory, without a copy. REQUIRES: it is row-major on the host, and nobody writes
// to it any more.
TensorData data_of(const NamedTensor& tensor);

NamedTensor to_tensor(const TensorData& data);

// Throws Error(kCheckpoint), prefixed with `where`, where shape or dtype differ.
void copy_into(const TensorData& data, const NamedTensor& tensor, const std::string& where);

}  // namespace autodist::exec
