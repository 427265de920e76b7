#include "autodist/exec/tensor_watch.h"

#include <array>
#include <cstring>
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

// A digest of some elements from the first to the last; nothing where the host cannot read them, or
// they do not fill their memory.
std::optional<std::uint64_t> digest_of_some(const torch::Tensor& tensor) {
  constexpr std::size_t kSome = 8;
  constexpr std::size_t kWidest = 16;  // bytes of a complex number
  const std::size_t width = tensor.element_size();
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (!tensor.is_cpu() || count == 0 || width > kWidest || !tensor.is_non_overlapping_and_dense()) {
    return std::nullopt;
  }
  const auto* const values = static_cast<const std::byte*>(tensor.data_ptr());
  std::array<std::byte, kSome * kWidest> some{};
  for (std::size_t i = 0; i < kSome; ++i) {
    const std::size_t at = (count - 1) * i / (kSome - 1);
    std::memcpy(some.data() + i * width, values + at * width, width);
  }
  return digest_of(some.data(), kSome * width).low;
}

}  // namespace

std::uint64_t digest_of_values(const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.detach().to(torch::kCPU).contiguous();
  return digest_of(values.data_ptr(), values.nbytes()).low;
}

TensorWatch::TensorWatch(const capture::Bindings& bindings) {
  const auto& models = bindings.of_model.empty() ? bindings.variables : bindings.of_model;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const bool required = i < bindings.required.size() && bindings.required[i];
    watched_.push_back({models[i], bindings.variables[i], required, {}, 0, {}});
    accept(ir::VariableId(i));
  }
}

void TensorWatch::note(ir::VariableId variable) {
  note(variable, digest_of_values(watched_[variable.value].model));
}

void TensorWatch::note(ir::VariableId variable, std::uint64_t digest) {
  watched_[variable.value].digest = digest;
}

void TensorWatch::check_trained(ir::VariableId variable, const std::string& name) const {
  const Watched& watched = watched_[variable.value];
  if (!watched.requires_grad || watched.model.requires_grad()) return;
  fail(ErrorCode::kUsage,
       "step: '{}' was trained and does not require a gradient any more. What is trained stays so: "
       "give it a learning rate of 0 (set_options), or train it in a step of its own "
       "(TrainingStep::trains).",
       name);
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
    // Somebody has kept what it lies on, or may have, as libtorch has not allocated it.
    const c10::Storage& storage = watched.handle.storage();
    if (storage.use_count() > 1 || !storage.resizable()) {
      watched.handle.set_data(torch::empty_strided(watched.handle.sizes(), watched.handle.strides(),
                                                   watched.handle.options()));
    }
    watched.handle.copy_(model.detach());
    model.set_data(watched.handle);
  }
  accept(variable);
  return now == before ? std::nullopt : std::optional(now);
}

void TensorWatch::follow(ir::VariableId variable) {
  const Watched& watched = watched_[variable.value];
  const torch::Tensor& model = watched.model;
  const bool lies_elsewhere = model.data_ptr() != watched.handle.data_ptr();
  const bool fits = of_one_kind(model, watched.handle) && !model.is_inference() &&
                    model.strides() == watched.handle.strides();
  if (!lies_elsewhere || !fits) return;
  const torch::NoGradGuard no_gradients;
  watched.handle.set_data(model.detach());
}

void TensorWatch::forget(ir::VariableId variable) {
  watched_[variable.value].digest.reset();
  writes(variable);
}

bool TensorWatch::is_touched(ir::VariableId variable) const {
  const Watched& watched = watched_[variable.value];
  if (writes_to(watched.handle) != watched.writes ||
      watched.model.data_ptr() != watched.handle.data_ptr()) {
    return true;
  }
  const MutexLock lock(*mutex_);
  return watched.some && watched.some != digest_of_some(watched.handle);
}

void TensorWatch::accept(ir::VariableId variable) {
  Watched& watched = watched_[variable.value];
  watched.writes = writes_to(watched.handle);
  writes(variable);
}

void TensorWatch::writes(ir::VariableId variable) {
  const MutexLock lock(*mutex_);
  watched_[variable.value].some.reset();
}

void TensorWatch::installed(ir::VariableId variable) {
  const MutexLock lock(*mutex_);
  Watched& watched = watched_[variable.value];
  watched.some = digest_of_some(watched.handle);
}

}  // namespace autodist::exec
