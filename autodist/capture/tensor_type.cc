#include "autodist/capture/tensor_type.h"

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::capture {
namespace {

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
    fail(ErrorCode::kUsage,
         "capture: tensors of another layout than strided or sparse COO. Convert them: to_dense(), "
         "or to_sparse().");
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

}  // namespace autodist::capture
