#include "autodist/capture/bindings.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/capture/torch_types.h"

namespace autodist::capture {
namespace {

using Names = std::unordered_map<std::string, torch::Tensor>;

Names by_name(const std::vector<NamedTensor>& tensors) {
  Names names;
  for (const NamedTensor& each : tensors) names.emplace(each.name, each.tensor);
  return names;
}

// Nothing that is bound depends on the batch.
std::string expected(const ir::TensorType& type) {
  return fmt::format("{} [{}]", name_of(type.dtype),
                     fmt::join(ir::integers_at(type.sizes, 0), ", "));
}

constexpr char kAgain[] = "Capture this model, or take the one that was captured.";

[[noreturn]] void missing(const ir::Graph& graph, const char* kind, const std::string& name,
                          const ir::TensorType& type, const Names& model) {
  std::vector<std::string> known;
  for (const auto& [other, tensor] : model) known.push_back(other);
  const std::string near = nearest(name, known);
  fail(ErrorCode::kUsage,
       "bind: graph '{}' has {} '{}' ({}), the model has no such name among {}{}. {}", graph.name,
       kind, name, expected(type), known.size(),
       near.empty() ? "" : fmt::format("; did it become '{}'?", near), kAgain);
}

// The stride of a dimension of one element says nothing.
bool same_strides(const torch::Tensor& tensor, const std::vector<std::int64_t>& strides) {
  if (static_cast<std::size_t>(tensor.dim()) != strides.size()) return false;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1 && tensor.stride(i) != strides[i]) return false;
  }
  return true;
}

const torch::Tensor& checked(const ir::Graph& graph, const char* kind, const std::string& name,
                             const ir::TensorType& type, const torch::Tensor& tensor) {
  const auto sizes = ir::integers_at(type.sizes, 0);
  if (tensor.sizes() != torch::IntArrayRef(sizes) || dtype_of(tensor.scalar_type()) != type.dtype) {
    fail(ErrorCode::kUsage, "bind: {} '{}' is {} in graph '{}' and {} in the model. {}", kind, name,
         expected(type), graph.name, describe(tensor), kAgain);
  }
  const auto strides = ir::integers_at(type.strides, 0);
  if (tensor.layout() == torch::kStrided && !same_strides(tensor, strides)) {
    fail(ErrorCode::kUsage,
         "bind: {} '{}' has strides [{}] in graph '{}' and [{}] in the model. {}", kind, name,
         fmt::join(strides, ", "), graph.name, fmt::join(tensor.strides().vec(), ", "), kAgain);
  }
  return tensor;
}

const torch::Tensor& find(const ir::Graph& graph, const char* kind, const std::string& name,
                          const ir::TensorType& type, const Names& model) {
  const auto found = model.find(name);
  if (found == model.end()) missing(graph, kind, name, type, model);
  return checked(graph, kind, name, type, found->second);
}

const torch::Tensor& find(const ir::Graph& graph, const ir::Variable& variable,
                          const Names& model) {
  const ir::TensorType& type = graph.value(variable.value).type;
  for (const std::string& alias : variable.aliases) {
    if (model.count(variable.name) == 0 && model.count(alias) != 0) {
      return find(graph, "variable", alias, type, model);
    }
  }
  return find(graph, "variable", variable.name, type, model);
}

torch::Tensor from_bytes(const ir::Graph& graph, const ir::Constant& constant,
                         const torch::Device& device) {
  const ir::TensorType& type = graph.value(constant.value).type;
  const auto sizes = ir::integers_at(type.sizes, 0);
  torch::Tensor dense = torch::empty(sizes, scalar_type_of(type.dtype));
  if (constant.bytes.size() != dense.nbytes()) {
    fail(
        ErrorCode::kUsage,
        "bind: an unnamed constant {} of graph '{}' is known by its digest alone ({}); capture the "
        "model in this process.",
        expected(type), graph.name, to_string(constant.digest));
  }
  std::memcpy(dense.data_ptr(), constant.bytes.data(), constant.bytes.size());
  torch::Tensor tensor =
      torch::empty_strided(sizes, ir::integers_at(type.strides, 0), dense.options().device(device));
  return tensor.copy_(dense);
}

// Of the same memory, in the same order. What is not strided has no one place.
bool lies_as(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.layout() != torch::kStrided && b.layout() != torch::kStrided) return true;
  return a.layout() == b.layout() && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

void check_followed(const std::string& name, const torch::Tensor& user, const torch::Tensor& handle,
                    const std::vector<torch::Tensor>& variables) {
  const std::string what = name.empty() ? "a tensor outside of the model" : "'" + name + "'";
  const bool of_one_kind = user.scalar_type() == handle.scalar_type() &&
                           user.device() == handle.device() && user.layout() == handle.layout() &&
                           user.sizes() == handle.sizes();
  if (!of_one_kind) {
    fail(ErrorCode::kUsage,
         "step: {}, which the step reads, was {} on {} and is {} on {} now. Write new values into "
         "it (copy_()), or distribute the changed model.",
         what, describe(handle), handle.device().str(), describe(user), user.device().str());
  }
  const bool shares =
      std::any_of(variables.begin(), variables.end(),
                  [&](const torch::Tensor& each) { return each.is_alias_of(user); });
  if (!shares && !handle.is_inference()) return;
  fail(ErrorCode::kUsage,
       "step: {}, which the step reads, has {} now. Write the values into it: "
       "tensor.copy_(values), under torch.no_grad().",
       what, shares ? "the memory of a parameter of the step" : "other memory");
}

// `name` is "" outside of the model. What the handle lay on is left as it is: somebody may have
// kept it.
void follow(const std::string& name, const torch::Tensor& user, const torch::Tensor& handle,
            const std::vector<torch::Tensor>& variables) {
  if (lies_as(user, handle)) return;
  check_followed(name, user, handle, variables);
  const torch::NoGradGuard no_gradients;
  torch::Tensor values = user.detach();
  if (user.strides() != handle.strides() || user.is_inference()) {  // ops know the strides
    // A copy of steps before. What libtorch has not allocated (NumPy's memory) others may have,
    // too.
    const c10::Storage& storage = handle.storage();
    if (storage.use_count() == 1 && storage.resizable() && !handle.is_alias_of(user)) {
      handle.copy_(user);
      return;
    }
    values = torch::empty_strided(handle.sizes(), handle.strides(), handle.options()).copy_(user);
  }
  handle.set_data(values);
}

}  // namespace

Bindings bind(const ir::Graph& graph, const TrainingStep& step, const torch::Device& device,
              const std::vector<torch::Tensor>& constants) {
  const Names parameters = by_name(step.parameters);
  const Names buffers = by_name(step.buffers);
  Bindings bindings;
  for (const ir::Variable& variable : graph.variables) {
    bindings.of_model.push_back(find(graph, variable, parameters));
    bindings.required.push_back(bindings.of_model.back().requires_grad());
    bindings.variables.push_back(bindings.of_model.back().detach());
  }
  for (const ir::Buffer& buffer : graph.buffers) {
    bindings.buffers.push_back(
        find(graph, "buffer", buffer.name, graph.value(buffer.value).type, buffers).detach());
  }
  for (std::size_t i = 0; i < graph.constants.size(); ++i) {
    const ir::Constant& constant = graph.constants[i];
    const ir::TensorType& type = graph.value(constant.value).type;
    if (i < constants.size() && constants[i].defined()) {
      bindings.constants.push_back(checked(graph, "constant", constant.name, type, constants[i]));
    } else if (!constant.name.empty()) {
      bindings.constants.push_back(
          find(graph, "frozen parameter", constant.name, type, parameters).detach());
    } else {
      bindings.constants.push_back(from_bytes(graph, constant, device));
    }
  }
  return bindings;
}

torch::Device device_of(const TrainingStep& step) {
  std::vector<NamedTensor> all = step.parameters;
  all.insert(all.end(), step.buffers.begin(), step.buffers.end());
  for (const NamedTensor& each : all) {
    if (each.tensor.device() != all[0].tensor.device()) {
      fail(ErrorCode::kUsage,
           "capture: '{}' is on {}, '{}' on {}. Put the model on one device; AutoDist places it.",
           all[0].name, all[0].tensor.device().str(), each.name, each.tensor.device().str());
    }
  }
  return all.empty() ? torch::Device(torch::kCPU) : all[0].tensor.device();
}

torch::Device device_of(const ir::Graph& graph, const Bindings& bindings) {
  if (bindings.variables.empty()) return torch::kCPU;
  const torch::Device device = bindings.variables.front().device();
  for (std::size_t i = 0; i < bindings.variables.size(); ++i) {
    const torch::Device other = bindings.variables[i].device();
    if (other == device) continue;
    fail(ErrorCode::kUsage,
         "step: '{}' is on {} and '{}' on {}; a rank trains on one device. Move all of the model "
         "to one.",
         graph.variables.front().name, device.str(), graph.variables[i].name, other.str());
  }
  return device;
}

void take_new_storage(const ir::Graph& graph, const Bindings& tensors) {
  for (std::size_t i = 0; i < tensors.of_model.size(); ++i) {
    const ir::Variable& variable = graph.variables[i];
    if (variable.gradient) continue;
    follow(variable.name, tensors.of_model[i], tensors.variables[i], tensors.variables);
  }
  for (std::size_t i = 0; i < tensors.of_user.size(); ++i) {
    follow(graph.constants[i].name, tensors.of_user[i], tensors.constants[i], tensors.variables);
  }
}

std::int64_t samples_of(const ir::Graph& graph, const Batch& batch) {
  for (std::size_t i = 0; i < graph.inputs.size() && i < batch.size(); ++i) {
    if (graph.inputs[i].batched && batch[i].dim() > 0) return batch[i].size(0);
  }
  return 1;
}

}  // namespace autodist::capture
