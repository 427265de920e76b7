#include "autodist/exec/factors.h"

#include <cstring>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/contributor.h"

namespace autodist::exec {
namespace {

torch::Tensor matrix_at(const std::byte* data, std::int64_t rows, std::int64_t columns,
                        torch::ScalarType type) {
  // from_blob() takes no const memory; nobody writes what this returns.
  return torch::from_blob(const_cast<std::byte*>(data), {rows, columns}, type);  // NOLINT
}

}  // namespace

comm::Payload pack_factors(const torch::Tensor& left, const torch::Tensor& right,
                           torch::ScalarType type) {
  AD_CHECK(left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0))
      << left.sizes() << " x " << right.sizes();
  const torch::Tensor first = row_major(left, type);
  const torch::Tensor second = row_major(right, type);
  std::shared_ptr<std::byte> packed = allocate_aligned(first.nbytes() + second.nbytes());
  std::memcpy(packed.get(), first.data_ptr(), first.nbytes());
  std::memcpy(packed.get() + first.nbytes(), second.data_ptr(), second.nbytes());
  return {packed.get(), first.nbytes() + second.nbytes(), packed};
}

void multiply_factors(const std::vector<WeightedFactors>& terms, program::MatrixShape shape,
                      DType dtype, std::byte* out) {
  const torch::NoGradGuard no_gradients;
  const torch::ScalarType type = scalar_type_of(dtype);
  const bool narrow = size_of(dtype) < sizeof(float);
  torch::Tensor result = torch::from_blob(out, {shape.rows, shape.columns}, type);
  torch::Tensor sum = narrow ? torch::empty(result.sizes(), torch::kFloat32) : result;
  sum.zero_();
  const std::size_t row_bytes =
      static_cast<std::size_t>(shape.rows + shape.columns) * size_of(dtype);
  for (const auto& [factors, weight] : terms) {
    AD_CHECK(factors.size % row_bytes == 0) << factors.size << " bytes are no factors of ["
                                            << shape.rows << ", " << shape.columns << "]";
    const auto inner = static_cast<std::int64_t>(factors.size / row_bytes);
    const std::size_t left_bytes = static_cast<std::size_t>(shape.rows * inner) * size_of(dtype);
    const torch::Tensor left = matrix_at(factors.data, shape.rows, inner, type);
    const torch::Tensor right = matrix_at(factors.data + left_bytes, inner, shape.columns, type);
    sum.addmm_(left.to(sum.scalar_type()), right.to(sum.scalar_type()), 1, weight);
  }
  if (narrow) result.copy_(sum);
}

}  // namespace autodist::exec
