// Sparse tensors of the test device: two tensors of it, put together on the host, which touches
// neither.

#include <ATen/ATen.h>
#include <ATen/SparseTensorImpl.h>
#include <torch/library.h>

#include "tests/device/kernels.h"

namespace autodist::test_device {
namespace {

using Stack = torch::jit::Stack;

at::Tensor sparse(at::IntArrayRef sizes, const at::Tensor& numbers, const at::Tensor& values) {
  at::Tensor tensor = at::detail::make_tensor<at::SparseTensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::SparsePrivateUse1), values.dtype());
  auto* implementation = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
  implementation->raw_resize_(numbers.size(0), values.dim() - 1, sizes);
  implementation->set_indices_and_values_unsafe(numbers, values);
  return tensor;
}

// _sparse_coo_tensor_with_dims_and_tensors: dimensions of numbers and of values, sizes, numbers,
// values; then options, which values have.
void make(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  std::vector<std::int64_t> sizes;
  for (const c10::IValue& each : stack->at(first + 2).toList()) {
    sizes.push_back(each.isInt() ? each.toInt() : each.toSymInt().expect_int());
  }
  const at::Tensor made =
      sparse(sizes, stack->at(first + 3).toTensor(), stack->at(first + 4).toTensor());
  stack->resize(first);
  stack->emplace_back(made);
}

// What the CPU's kernel finds in the object itself.
void as_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  op.callBoxedForDispatchKey(c10::DispatchKey::SparseCPU, *stack);
}

at::Tensor with_values(const at::Tensor& like, const at::Tensor& values) {
  return sparse(like.sizes(), like._indices(), values);
}
at::Tensor multiply(const at::Tensor& tensor, const at::Tensor& number) {
  return with_values(tensor, tensor._values() * number);
}
at::Tensor divide(const at::Tensor& tensor, const at::Tensor& number) {
  return with_values(tensor, tensor._values() / number);
}
at::Tensor add(const at::Tensor& a, const at::Tensor& b, const at::Scalar& factor) {
  return sparse(a.sizes(), at::cat({a._indices(), b._indices()}, 1),
                at::cat({a._values(), b._values() * factor}, 0));
}
at::Tensor clone(const at::Tensor& tensor, c10::optional<at::MemoryFormat> /*format*/) {
  return sparse(tensor.sizes(), tensor._indices().clone(), tensor._values().clone());
}

}  // namespace

void register_sparse_kernels() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::SparsePrivateUse1,
                                __FILE__, __LINE__);
  library.impl("_sparse_coo_tensor_with_dims_and_tensors",
               torch::CppFunction::makeFromBoxedFunction<&make>());
  for (const char* name :
       {"_nnz", "sparse_dim", "dense_dim", "is_coalesced", "_coalesced_", "_indices", "_values"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&as_on_cpu>());
  }
  library.impl("mul.Tensor", TORCH_FN(multiply));
  library.impl("div.Tensor", TORCH_FN(divide));
  library.impl("add.Tensor", TORCH_FN(add));
  library.impl("clone", TORCH_FN(clone));
}

}  // namespace autodist::test_device
