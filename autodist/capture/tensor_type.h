// Between libtorch's tensors and the types and digests of a Graph. Private to capture.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/digest.h"
#include "autodist/base/dtype.h"
#include "autodist/capture/training_step.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

// Throw Error(kUsage) for an element type or a layout that a Graph does not know.
DType dtype_of(at::ScalarType type);
ir::TensorType type_of(const at::Tensor& tensor);

at::ScalarType scalar_type_of(DType dtype);

// Of type, shape and contents, row-major; of indices and values of a sparse tensor as they stand.
// An undefined tensor has one too.
Digest digest_of(const at::Tensor& tensor);

// Of the memory that the tensor looks at, as it stands: equal before and after a call that leaves
// the tensor alone. Nothing is copied for a view with gaps or another order.
Digest digest_of_memory(const at::Tensor& tensor);

// The contents, row-major. REQUIRES: dense.
std::string bytes_of(const at::Tensor& tensor);

// A dense tensor in host memory with these contents. REQUIRES: as many as the sizes need.
at::Tensor tensor_from_bytes(DType dtype, const std::vector<std::int64_t>& sizes,
                             const std::string& bytes);

}  // namespace autodist::capture
