// Between libtorch's tensors and the types and digests of a Graph. Private to capture.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/digest.h"
#include "autodist/base/dtype.h"
#include "autodist/capture/torch_types.h"
#include "autodist/capture/training_step.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

// Throws Error(kUsage) for an element type or a layout that a Graph does not know.
ir::TensorType type_of(const at::Tensor& tensor);

// Of type, shape and contents, row-major; of indices and values of a sparse tensor as they stand.
// An undefined tensor has one too.
Digest digest_of(const at::Tensor& tensor);

// Of the memory that the tensor looks at, as it stands: equal before and after a call that leaves
// the tensor alone. Nothing is copied for a view with gaps or another order.
Digest digest_of_memory(const at::Tensor& tensor);

// The contents, row-major. REQUIRES: dense.
std::string bytes_of(const at::Tensor& tensor);

}  // namespace autodist::capture
