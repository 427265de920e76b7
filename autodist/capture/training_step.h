// The one place where a user's model enters: a training step as named tensors and a function.
//
// Opt-in: this header and app/torch/session.h are the only ones that include torch.

#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace autodist {

// The tensors of one batch, in the order in which the step takes them. Where an input is split
// over replicas, its first dimension is the batch.
using Batch = std::vector<torch::Tensor>;

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// How the loss of a batch follows from its samples: decides whether replicas are averaged (weighted
// by samples) or added.
enum class LossReduction { kMean, kSum };

struct TrainingStep {
  std::string name;

  // In the model's order, which is the order of variables everywhere. One tensor under two names is
  // a tied variable; one without requires_grad is frozen (a constant of the job).
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;

  // One batch to the scalar loss, in training mode. Must not call backward().
  std::function<torch::Tensor(const Batch&)> loss;

  // One batch to outputs (logits, say), in evaluation mode; may be empty.
  std::function<std::vector<torch::Tensor>(const Batch&)> evaluate;

  // What one replica gets in a step.
  Batch example;

  LossReduction reduction = LossReduction::kMean;

  // Keeps the model alive as long as the functions above.
  std::shared_ptr<void> owner;
};

// A step of a torch::nn module holder (torch::nn::Linear, your own TORCH_MODULE) or of a
// std::shared_ptr to a module. `loss` takes (module&, batch) and returns a scalar.
template <typename Module, typename Loss>
TrainingStep make_training_step(std::string name, std::shared_ptr<Module> module, Loss loss,
                                Batch example) {
  TrainingStep step;
  step.name = std::move(name);
  for (const auto& item : module->named_parameters()) {
    step.parameters.push_back({item.key(), item.value()});
  }
  for (const auto& item : module->named_buffers()) {
    step.buffers.push_back({item.key(), item.value()});
  }
  step.loss = [module, loss](const Batch& batch) { return loss(*module, batch); };
  step.example = std::move(example);
  step.owner = module;
  return step;
}

}  // namespace autodist
