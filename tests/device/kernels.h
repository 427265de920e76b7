// The kernels of the test device.

#pragma once

#include <ATen/ATen.h>

namespace autodist::test_device {

// For every op that the CPU has a kernel for: hands the CPU's to the current queue, whose outputs
// hold nothing of use until then.
void register_kernels();

// For tensors of rows and their numbers: what gradients of tables need.
void register_sparse_kernels();

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

}  // namespace autodist::test_device
