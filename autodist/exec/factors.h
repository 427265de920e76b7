// A gradient that travels as the two matrices whose product it is ("sufficient factor
// broadcasting", Xie et al., UAI 2016): left [rows, k], then right [k, columns], row-major.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/comm/transport.h"
#include "autodist/program/compression.h"

namespace autodist::exec {

// A copy of both, of `type` on the host.
comm::Payload pack_factors(const torch::Tensor& left, const torch::Tensor& right,
                           torch::ScalarType type);

struct WeightedFactors {
  comm::Payload factors;
  double weight = 1;
};

// out [shape.rows, shape.columns] = sum over terms, in their order, of weight * left * right; f16
// and bf16 are added as f32 and rounded once. No terms: zeros. Throws InternalError where a payload
// is not two matrices of this shape with one k.
void multiply_factors(const std::vector<WeightedFactors>& terms, program::MatrixShape shape,
                      DType dtype, std::byte* out);

}  // namespace autodist::exec
