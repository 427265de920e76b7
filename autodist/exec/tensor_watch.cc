#include "autodist/exec/tensor_watch.h"

#include <utility>

#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"

namespace autodist::exec {
namespace {

// Tensors of inference mode have no counter.
std::uint32_t writes_to(const torch::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version());
}

bool of_one_kind(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() &&
         a.layout() == b.layout() && a.sizes() == b.sizes();
}

}  // namespace

std::uint64_t digest_of_values(const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.detach().to(torch::kCPU).contiguous();
  return digest_of(values.data_ptr(), values.nbytes()).low;
}

TensorWatch::TensorWatch(const capture::Bindings& bindings) {
  const auto& models = bindings.of_model.empty() ? bindings.variables : bindings.of_model;
  for (std::size_t i = 0; i < models.size(); ++i) {
    watched_.push_back({models[i], bindings.variables[i], std::nullopt, 0});
    accept(ir::VariableId(i));
  }
}

void TensorWatch::note(ir::VariableId variable) {
  note(variable, digest_of_values(watched_[variable.value].model));
}

void TensorWatch::note(ir::VariableId variable, std::uint64_t digest) {
  watched_[variable.value].digest = digest;
}

void TensorWatch::check_kind(ir::VariableId variable, const std::string& name) const {
  const Watched& watched = watched_[variable.value];
  const torch::Tensor& model = watched.model;
  if (of_one_kind(model, watched.handle)) return;
  fail(ErrorCode::kUsage,
       "step: '{}' was {} on {} and is {} on {} now. What is trained keeps its type, shape and "
       "device: write new values into it, or distribute the changed model.",
       name, describe(watched.handle), watched.handle.device().str(), describe(model),
       model.device().str());
}

std::optional<std::uint64_t> TensorWatch::take_change(ir::VariableId variable) {
  Watched& watched = watched_[variable.value];
  torch::Tensor& model = watched.model;
  const std::uint64_t before = *std::exchange(watched.digest, std::nullopt);
  const std::uint64_t now = digest_of_values(model);
  if (model.data_ptr() != watched.handle.data_ptr() ||
      model.strides() != watched.handle.strides()) {
    const torch::NoGradGuard no_gradients;
    watched.handle.copy_(model.detach());
    model.set_data(watched.handle);
  }
  accept(variable);
  return now == before ? std::nullopt : std::optional(now);
}

bool TensorWatch::is_touched(ir::VariableId variable) const {
  const Watched& watched = watched_[variable.value];
  return writes_to(watched.handle) != watched.writes ||
         watched.model.data_ptr() != watched.handle.data_ptr();
}

void TensorWatch::accept(ir::VariableId variable) {
  Watched& watched = watched_[variable.value];
  watched.writes = writes_to(watched.handle);
}

}  // namespace autodist::exec
