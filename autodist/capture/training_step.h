// The one place where a user's model enters: a training step as named tensors and a function.
//
// Opt-in: includes torch. layers.txt lists the headers that take it along into other rooms.

#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
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

  // Which of the parameters this step trains, by name or by the name of a module that holds them;
  // the others it reads as they are. Empty: all that require a gradient.
  std::vector<std::string> trains;

  // One batch to the scalar loss, in training mode. Must not call backward().
  std::function<torch::Tensor(const Batch&)> loss;

  // One batch to what `loss` returns, and behind it what else a step shall return
  // (Session::outputs): always as many tensors. Empty: the loss alone.
  std::function<std::vector<torch::Tensor>(const Batch&)> loss_and_more = nullptr;

  // One batch to outputs (logits, say), in evaluation mode; may be empty.
  std::function<std::vector<torch::Tensor>(const Batch&)> evaluate;
  // Puts the model into evaluation mode until what it returns goes. Empty: `evaluate` sees to that.
  std::function<std::shared_ptr<void>()> enter_evaluation = nullptr;

  // What one replica gets in a step.
  Batch example;
  // Of its tensors, for messages and for the graph. Empty: input0, input1, …
  std::vector<std::string> input_names = {};
  // Which of its tensors have the batch as their first dimension and are split over the replicas;
  // the others go whole to each. Empty: those with as many rows as the first tensor.
  std::vector<bool> batched;

  LossReduction reduction = LossReduction::kMean;

  // What the host has changed since the step was first captured (a weight of the loss), in a
  // sentence for messages; empty: nothing that it knows of.
  std::function<std::string()> host_changes = nullptr;

  // Where in the user's program this thread is, for messages ("model.py:12"); empty, or "": not
  // known.
  std::function<std::string()> where = nullptr;

  // Moves the model to a device: parameters and buffers in place, and what else it holds. Empty:
  // the tensors of this struct are moved alone.
  std::function<void(torch::Device)> move = nullptr;

  // Keeps the model alive as long as the functions of this struct.
  std::shared_ptr<void> owner;
};

// Whether input `index` of the step is split over the replicas.
inline bool is_batched(const TrainingStep& step, std::size_t index) {
  if (!step.batched.empty()) return step.batched.at(index);
  const torch::Tensor& first = step.example.front();
  const torch::Tensor& input = step.example.at(index);
  return first.dim() > 0 && input.dim() > 0 && input.size(0) == first.size(0);
}

// The loss of a batch, and behind it what else the step returns.
inline std::vector<torch::Tensor> returned_by(const TrainingStep& step, const Batch& batch) {
  if (step.loss_and_more) return step.loss_and_more(batch);
  return {step.loss(batch)};
}

// The outputs of a batch, in evaluation mode. REQUIRES: the step has an `evaluate`.
inline std::vector<torch::Tensor> evaluated_by(const TrainingStep& step, const Batch& batch) {
  std::shared_ptr<void> evaluation;
  if (step.enter_evaluation) evaluation = step.enter_evaluation();
  return step.evaluate(batch);
}

// Evaluation mode of a module until what it returns goes; then all that is in it is in the mode in
// which it was.
template <typename Module>
std::shared_ptr<void> enter_evaluation(const std::shared_ptr<Module>& module) {
  const auto parts = module->modules();
  std::vector<bool> modes;
  for (const auto& each : parts) modes.push_back(each->is_training());
  module->eval();
  return {nullptr, [parts, modes](void*) {
            std::size_t next = 0;  // a module comes before what is in it, whose mode it sets, too
            for (const auto& each : parts) each->train(modes[next++]);
          }};
}

// Samples of the example; 0 where no input is batched.
inline std::int64_t example_rows(const TrainingStep& step) {
  for (std::size_t i = 0; i < step.example.size(); ++i) {
    const torch::Tensor& input = step.example[i];
    if (is_batched(step, i) && input.dim() > 0) return input.size(0);
  }
  return 0;
}

// A step of a torch::nn module holder (torch::nn::Linear, your own TORCH_MODULE) or of a
// std::shared_ptr to a module. `loss` takes (module&, batch) and returns a scalar, or a vector of
// it and of what else the step returns.
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
  if constexpr (std::is_convertible_v<std::invoke_result_t<Loss, Module&, const Batch&>,
                                      torch::Tensor>) {
    step.loss = [module, loss](const Batch& batch) { return loss(*module, batch); };
  } else {
    step.loss_and_more = [module, loss](const Batch& batch) { return loss(*module, batch); };
    step.loss = [more = step.loss_and_more](const Batch& batch) { return more(batch).at(0); };
  }
  step.enter_evaluation = [module] { return enter_evaluation(module); };
  step.example = std::move(example);
  step.move = [module](torch::Device device) { module->to(device); };
  step.owner = module;
  return step;
}

}  // namespace autodist
