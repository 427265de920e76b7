#include "autodist/exec/tensor_data.h"

#include <cstring>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"

namespace autodist::exec {

TensorData to_data(const NamedTensor& tensor) {
  const torch::Tensor dense = tensor.tensor.detach().to(torch::kCPU).contiguous();
  TensorData data;
  data.name = tensor.name;
  data.dtype = dtype_of(dense.scalar_type());
  data.shape = dense.sizes().vec();
  data.bytes.assign(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
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
