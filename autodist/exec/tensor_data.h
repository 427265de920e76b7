// Torch tensors as plain bytes, and back.
//
// Takes the opt-in training_step.h, and so includes torch.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/capture/training_step.h"
#include "autodist/exec/safetensors.h"

namespace autodist::exec {

// Of a dense tensor.
inline std::byte* memory_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// Of a sparse tensor, of its indices and values.
inline Bytes byte_count(const torch::Tensor& tensor) {
  if (tensor.is_sparse()) return byte_count(tensor._indices()) + byte_count(tensor._values());
  return Bytes(static_cast<std::int64_t>(tensor.nbytes()));
}

// A row-major copy on the host.
TensorData to_data(const NamedTensor& tensor);
std::vector<TensorData> to_data(const std::vector<NamedTensor>& tensors);
// The tensor's own memory, without a copy. REQUIRES: it is row-major on the host, and nobody writes
// to it any more.
TensorData data_of(const NamedTensor& tensor);

NamedTensor to_tensor(const TensorData& data);

// Throws Error(kCheckpoint), prefixed with `where`, where shape or dtype differ.
void copy_into(const TensorData& data, const NamedTensor& tensor, const std::string& where);

}  // namespace autodist::exec
