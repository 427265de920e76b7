#include "autodist/capture/tensor_type.h"

#include <array>
#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::capture {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 12> kTypes = {{
    {DType::kFloat32, at::kFloat},
    {DType::kFloat64, at::kDouble},
    {DType::kFloat16, at::kHalf},
    {DType::kBFloat16, at::kBFloat16},
    {DType::kInt8, at::kChar},
    {DType::kUInt8, at::kByte},
    {DType::kInt16, at::kShort},
    {DType::kInt32, at::kInt},
    {DType::kInt64, at::kLong},
    {DType::kBool, at::kBool},
    {DType::kComplex64, at::kComplexFloat},
    {DType::kComplex128, at::kComplexDouble},
}};

std::vector<ir::Affine> constants(at::IntArrayRef numbers) {
  std::vector<ir::Affine> result;
  result.reserve(numbers.size());
  for (std::int64_t number : numbers) result.push_back({0, number});
  return result;
}

// Contents in host memory, dense and row-major. Most tensors are that already, and digests of every
// argument of every op are not to cost four calls of the dispatcher each.
at::Tensor plain(const at::Tensor& tensor) {
  const bool as_it_stands =
      tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (as_it_stands) return tensor;
  return tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

Digest combine(const std::vector<Digest>& parts) {
  return autodist::digest_of(parts.data(), parts.size() * sizeof(Digest));
}

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  fail(ErrorCode::kUsage, "capture: elements of type {} are not supported.", c10::toString(type));
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  AD_CHECK(false) << "unknown element type " << static_cast<int>(dtype);
  return at::kFloat;
}

ir::TensorType type_of(const at::Tensor& tensor) {
  ir::TensorType type;
  type.dtype = dtype_of(tensor.scalar_type());
  type.sizes = constants(tensor.sizes());
  if (tensor.layout() == at::kSparse) {
    type.layout = ir::Layout::kSparseCoo;
  } else if (tensor.layout() == at::kStrided) {
    type.strides = constants(tensor.strides());
    type.offset = {0, tensor.storage_offset()};
  } else {
    fail(ErrorCode::kUsage, "capture: tensors of another layout than strided or sparse COO.");
  }
  return type;
}

Digest digest_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.is_sparse()) {
    return combine({digest_of(tensor._indices()), digest_of(tensor._values())});
  }
  const at::Tensor data = plain(tensor);
  std::vector<std::int64_t> shape = data.sizes().vec();
  shape.push_back(static_cast<std::int64_t>(data.scalar_type()));
  return combine({autodist::digest_of(shape.data(), shape.size() * sizeof(std::int64_t)),
                  autodist::digest_of(data.data_ptr(), data.nbytes())});
}

Digest digest_of_memory(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.is_cpu()) return digest_of(tensor);
  if (tensor.numel() == 0) return {};
  std::int64_t elements = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    elements += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return autodist::digest_of(tensor.data_ptr(),
                             static_cast<std::size_t>(elements) * tensor.element_size());
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor data = plain(tensor);
  return {static_cast<const char*>(data.data_ptr()), data.nbytes()};
}

at::Tensor tensor_from_bytes(DType dtype, const std::vector<std::int64_t>& sizes,
                             const std::string& bytes) {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(scalar_type_of(dtype)));
  AD_CHECK(tensor.nbytes() == bytes.size())
      << "a constant has " << bytes.size() << " bytes, its shape needs " << tensor.nbytes();
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace autodist::capture
