#include "autodist/capture/torchscript.h"

#include <torch/script.h>

#include <memory>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/text.h"

namespace autodist::capture {
namespace {

at::Tensor call(torch::jit::Module& module, const std::string& name, const Batch& inputs) {
  std::vector<c10::IValue> arguments(inputs.begin(), inputs.end());
  const c10::IValue output = module.forward(std::move(arguments));
  if (!output.isTensor()) {
    fail(ErrorCode::kUsage,
         "torchscript: '{}' returns {}, expected one tensor. Script a module that returns that "
         "alone.",
         name, output.tagKind());
  }
  return output.toTensor();
}

at::Tensor loss_of(ScriptLoss loss, const at::Tensor& output, const at::Tensor& target) {
  if (loss == ScriptLoss::kMse) return at::mse_loss(output, target);
  return at::cross_entropy_loss(output, target);
}

torch::jit::Module load(const std::string& path) {
  try {
    return torch::jit::load(path);
  } catch (const std::exception& error) {  // libtorch's reader throws what its parsers do
    const auto* const libtorchs = dynamic_cast<const c10::Error*>(&error);
    const std::string text =
        libtorchs != nullptr ? libtorchs->what_without_backtrace() : error.what();
    fail(ErrorCode::kUsage,
         "torchscript: '{}' cannot be read: {}. A file of torch.jit.save or `autodist export` "
         "expected.",
         path, without_dot(autodist::first_line(text)));
  }
}

}  // namespace

ScriptLoss script_loss_from_name(const std::string& name) {
  if (name == "none") return ScriptLoss::kNone;
  if (name == "cross_entropy") return ScriptLoss::kCrossEntropy;
  if (name == "mse") return ScriptLoss::kMse;
  fail(ErrorCode::kUsage, "torchscript: no loss is named '{}'. Take none, cross_entropy or mse.",
       name);
}

TrainingStep training_step_from_torchscript(const std::string& path, ScriptLoss loss,
                                            Batch example) {
  const auto module = std::make_shared<torch::jit::Module>(load(path));
  TrainingStep step;
  step.name = path.substr(path.rfind('/') + 1);
  for (const auto& each : module->named_parameters()) {
    step.parameters.push_back({each.name, each.value});
  }
  for (const auto& each : module->named_buffers()) step.buffers.push_back({each.name, each.value});
  if (loss != ScriptLoss::kNone && example.size() < 2) {
    fail(ErrorCode::kUsage,
         "torchscript: '{}' needs inputs and targets, got {} tensor{}. Give --input once for each, "
         "or --loss none where the module returns its loss.",
         path, example.size(), example.size() == 1 ? "" : "s");
  }
  const auto outputs = [module, path, loss](const Batch& batch) {
    const bool with_targets = loss != ScriptLoss::kNone;
    return call(*module, path, Batch(batch.begin(), batch.end() - (with_targets ? 1 : 0)));
  };
  step.loss = [module, outputs, loss](const Batch& batch) {
    module->train();
    const at::Tensor output = outputs(batch);
    return loss == ScriptLoss::kNone ? output : loss_of(loss, output, batch.back());
  };
  step.evaluate = [module, outputs](const Batch& batch) {
    module->eval();
    return std::vector<at::Tensor>{outputs(batch)};
  };
  step.example = std::move(example);
  step.owner = module;
  return step;
}

}  // namespace autodist::capture
