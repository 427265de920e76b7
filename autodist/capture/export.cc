#include "autodist/capture/export.h"

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/script.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/text.h"
#include "autodist/capture/torch_types.h"
#include "autodist/ir/names.h"

namespace autodist::capture {
namespace {

using torch::jit::Module;
using Function = std::function<std::vector<torch::Tensor>(const Batch&)>;

constexpr const char* kForward = "forward";
constexpr const char* kTrainStep = "train_step";

struct Method {
  Function own;                    // the model's
  std::vector<std::size_t> taken;  // tensors of a batch
};

// "features.0.weight" is tensor `weight` of module `0` of module `features`.
class ModuleTree {
 public:
  explicit ModuleTree(const std::string& name)
      : root_("__torch__." + name, std::make_shared<torch::jit::CompilationUnit>()) {}

  void add(const NamedTensor& tensor, bool is_buffer) {
    Module module = module_at(ir::module_of(tensor.name));
    const std::string name = last_name(tensor.name);
    if (is_buffer) {
      module.register_buffer(name, tensor.tensor);
    } else {
      module.register_parameter(name, tensor.tensor, /*is_buffer=*/false);
    }
  }

  Module& root() { return root_; }

 private:
  static std::string last_name(const std::string& path) {
    return path.substr(path.rfind('.') + 1);  // all of it where there is no dot
  }

  // "": the root.
  Module module_at(const std::string& path) {
    if (path.empty()) return root_;
    if (const auto found = modules_.find(path); found != modules_.end()) return found->second;
    Module parent = module_at(ir::module_of(path));
    std::string type = "__torch__.exported_" + path;  // one identifier: numbers do not begin any
    std::replace(type.begin() + 10, type.end(), '.', '_');
    Module made(type, root_._ivalue()->compilation_unit());
    parent.register_module(last_name(path), made);
    return modules_.emplace(path, made).first->second;
  }

  Module root_;
  std::map<std::string, Module> modules_;
};

torch::jit::Stack stack_of(const std::vector<torch::Tensor>& tensors) {
  if (tensors.size() == 1) return {tensors.front()};
  std::vector<c10::IValue> values(tensors.begin(), tensors.end());
  return {c10::ivalue::Tuple::create(std::move(values))};
}

// Returns which tensors of a batch it takes: those that it reads, or all.
std::vector<std::size_t> add_method(Module& module, const std::string& name, const Batch& example,
                                    const Function& function) {
  std::vector<std::string> arguments;
  for (std::size_t i = 0; i < example.size(); ++i) arguments.push_back(fmt::format("x{}", i));
  std::vector<std::size_t> taken(example.size());
  std::iota(taken.begin(), taken.end(), std::size_t{0});
  torch::jit::Stack inputs(example.begin(), example.end());
  const auto traced = [&](torch::jit::Stack stack) {
    Batch batch;
    for (const c10::IValue& each : stack) batch.push_back(each.toTensor());
    return stack_of(function(batch));
  };
  try {
    const auto [state, outputs] = torch::jit::tracer::trace(
        std::move(inputs), traced, [](const torch::Tensor&) { return std::string(); },
        /*strict=*/true, /*force_outplace=*/false, &module, arguments);
    for (std::size_t i = example.size(); name == kForward && i-- > 0;) {
      if (state->graph->inputs()[i + 1]->hasUses()) continue;  // input 0 is the module
      state->graph->eraseInput(i + 1);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const c10::QualifiedName method(*module.type()->name(), name);
    module.type()->addMethod(
        module._ivalue()->compilation_unit()->create_function(method, state->graph));
  } catch (const std::exception& error) {
    fail(ErrorCode::kUsage,
         "export: '{}' cannot be traced, and must run by itself on an example of its batch: {}",
         name, autodist::first_line(error.what()));
  }
  return taken;
}

std::vector<torch::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  std::vector<torch::Tensor> tensors;
  for (const c10::IValue& each : value.toTuple()->elements()) tensors.push_back(each.toTensor());
  return tensors;
}

// Rows in another order, and `rows` of them.
Batch other_rows(const TrainingStep& step, std::int64_t rows) {
  Batch batch;
  for (std::size_t i = 0; i < step.example.size(); ++i) {
    const torch::Tensor& input = step.example[i];
    batch.push_back(is_batched(step, i) ? input.roll(1, 0).slice(0, 0, rows).clone() : input);
  }
  return batch;
}

// Whether the file's function gives what the model's own gives; with the generator in the same
// state, and buffers (batch norm's statistics) as they were.
std::optional<std::string> difference(const std::string& path, const std::string& name,
                                      const Method& method, const Batch& batch) {
  std::vector<c10::IValue> inputs;
  for (const std::size_t index : method.taken) inputs.emplace_back(batch[index]);
  std::vector<torch::Tensor> theirs;
  try {
    Module file = torch::jit::load(path);
    torch::manual_seed(1);
    theirs = tensors_of(file.get_method(name)(std::move(inputs)));
  } catch (const std::exception& error) {
    return autodist::first_line(error.what());
  }
  torch::manual_seed(1);
  const std::vector<torch::Tensor> ours = method.own(batch);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].sizes() != theirs[i].sizes()) {
      return fmt::format("its result {} is {}, the model's {}", i, describe(theirs[i]),
                         describe(ours[i]));
    }
    if (!torch::allclose(ours[i], theirs[i], 1e-4, 1e-5, /*equal_nan=*/true)) {
      return fmt::format("its result {} differs from the model's by {}", i,
                         (ours[i] - theirs[i]).abs().max().item<double>());
    }
  }
  return std::nullopt;
}

nlohmann::ordered_json inputs_of(const TrainingStep& step, const std::vector<std::size_t>& taken,
                                 bool any_batch) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
  for (const std::size_t i : taken) {
    const torch::Tensor& input = step.example[i];
    std::vector<std::int64_t> shape = input.sizes().vec();
    if (any_batch && is_batched(step, i)) shape[0] = -1;
    inputs.push_back({{"name", fmt::format("x{}", i)},
                      {"dtype", name_of(dtype_of(input.scalar_type()))},
                      {"shape", shape}});
  }
  return inputs;
}

// libtorch's writer ends the process where one of its writes fails; this one keeps that to itself.
void write_module(const Module& module, const torch::jit::ExtraFilesMap& extra, OutputFile& file) {
  torch::jit::ExportModule(
      module,
      [&file](const void* data, std::size_t size) {
        file.write(data, size);
        return size;
      },
      extra);
}

}  // namespace

ExportedSignatures export_torchscript(const TrainingStep& step, const std::string& path) {
  ModuleTree tree("exported");
  for (const NamedTensor& each : step.parameters) tree.add(each, /*is_buffer=*/false);
  for (const NamedTensor& each : step.buffers) tree.add(each, /*is_buffer=*/true);

  // What tracing and comparing do to batch norm's statistics is undone.
  std::vector<torch::Tensor> buffers;
  for (const NamedTensor& each : step.buffers) buffers.push_back(each.tensor.clone());
  const auto restore = [&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers.size(); ++i) step.buffers[i].tensor.copy_(buffers[i]);
  };

  std::map<std::string, Method> methods;
  methods[kTrainStep].own = [&](const Batch& batch) {
    return std::vector<torch::Tensor>{step.loss(batch)};
  };
  if (step.evaluate) {
    methods[kForward].own = [&](const Batch& batch) { return evaluated_by(step, batch); };
  }
  for (auto& [name, method] : methods) {
    method.taken = add_method(tree.root(), name, step.example, method.own);
    restore();
  }

  ExportedSignatures signatures;
  signatures.has_forward = static_cast<bool>(step.evaluate);
  try {
    std::optional<OutputFile> file(path);
    write_module(tree.root(), {}, *file);
    const std::int64_t rows = example_rows(step);
    for (const auto& [name, method] : methods) {
      const auto wrong = difference(file->written(), name, method, other_rows(step, rows));
      restore();
      if (wrong) {
        fail(ErrorCode::kUsage,
             "export: {}: '{}' does not compute what the model does: {}. What the host computes "
             "for a batch is written down as it was; compute it with tensors.",
             path, name, *wrong);
      }
      if (rows > 1 && difference(file->written(), name, method, other_rows(step, rows - 1))) {
        signatures.any_batch = false;
      }
      restore();
    }
    nlohmann::ordered_json json{{"any_batch", signatures.any_batch}};
    for (const auto& [name, method] : methods) {
      json[name] = inputs_of(step, method.taken, signatures.any_batch);
    }
    signatures.json = json.dump();
    file.emplace(path);
    write_module(tree.root(), {{"signatures.json", signatures.json}}, *file);
    file->commit();
  } catch (const c10::Error& error) {
    fail(ErrorCode::kUsage, "export: {}: {}", path, autodist::first_line(error.what()));
  }
  return signatures;
}

}  // namespace autodist::capture
