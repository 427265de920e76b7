#include "autodist/exec/tensor_data.h"

#include <cstring>
#include <memory>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"

namespace autodist::exec {

TensorData to_data(const NamedTensor& tensor) {
  const torch::NoGradGuard no_grad;
  // libtorch's memory is kept from copy to copy where it is large (exec/tensor_memory.h).
  const torch::Tensor copy = torch::empty(tensor.tensor.sizes(), tensor.tensor.scalar_type());
  return data_of({tensor.name, copy.copy_(tensor.tensor.detach())});
}

std::vector<TensorData> to_data(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorData> data;
  for (const NamedTensor& each : tensors) data.push_back(to_data(each));
  return data;
}

TensorData data_of(const NamedTensor& tensor) {
  AD_CHECK(tensor.tensor.is_cpu() && tensor.tensor.is_contiguous()) << tensor.name;
  const auto keep = std::make_shared<const torch::Tensor>(tensor.tensor.detach());
  TensorData data;
  data.name = tensor.name;
  data.dtype = dtype_of(keep->scalar_type());
  data.shape = keep->sizes().vec();
  data.bytes = {{static_cast<const char*>(keep->data_ptr()), keep->nbytes()}, keep};
  return data;
}

NamedTensor to_tensor(const TensorData& data) {
  torch::Tensor tensor = torch::empty(data.shape, scalar_type_of(data.dtype));
  AD_CHECK(tensor.nbytes() == data.bytes.size()) << data.name;
  std::memcpy(tensor.data_ptr(), data.bytes.data(), data.bytes.size());
  return {data.name, tensor};
}

void copy_into(const TensorData& data, const NamedTensor& tensor, const std::string& where) {
  const NamedTensor source = to_tensor(data);
  const bool same = source.tensor.sizes() == tensor.tensor.sizes() &&
                    source.tensor.scalar_type() == tensor.tensor.scalar_type();
  if (!same) {
    fail(ErrorCode::kCheckpoint,
         "{}: '{}' is {}, the model's is {}. Take a checkpoint of this model, or the model that "
         "wrote it.",
         where, data.name, describe(source.tensor), describe(tensor.tensor));
  }
  const torch::NoGradGuard no_grad;
  tensor.tensor.detach().copy_(source.tensor);
}

}  // namespace autodist::exec
