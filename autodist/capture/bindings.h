// The tensors behind a graph's names: a model's parameters and buffers, and the constants that the
// graph itself carries.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

// Handles on the model's own storage, parallel to the graph's lists: what a step writes, the model
// sees.
struct Bindings {
  std::vector<torch::Tensor> variables;
  std::vector<torch::Tensor> buffers;
  std::vector<torch::Tensor> constants;
  // The model's own tensors that `variables` are handles of; empty where there is no model.
  std::vector<torch::Tensor> of_model{};
  // Whether those required a gradient when they were bound.
  std::vector<bool> required{};
  // The user's own tensors that `constants` are handles of, where they are those of a capture.
  std::vector<torch::Tensor> of_user{};
};

// Before a step reads what it does not train: a handle of a tensor that has other storage now
// (`p.data = …`, `set_()`) gets that storage, with whatever is written there from now on. Where its
// strides are others than the handle's, which the graph's ops know, the handle gets a copy instead,
// before every step.
//
// Throws Error(kUsage) with its name where it is of another type, shape or device now, or shares
// the storage of a variable.
void take_new_storage(const ir::Graph& graph, const Bindings& tensors);

// Finds every variable, buffer and named constant of `graph` in `step` by name (a tied parameter
// under any of its names) and copies the others from the graph's bytes to `device`. `constants` are
// the handles of a capture in this process, parallel to graph.constants: they are taken as they
// are, so that all who have them read the same storage. Where there are none, a constant that the
// graph holds by digest alone cannot be bound. The handles are without autograd.
//
// Throws Error(kUsage) that lists both sides where a name is missing, or a shape, dtype or layout
// differs.
Bindings bind(const ir::Graph& graph, const TrainingStep& step,
              const torch::Device& device = torch::kCPU,
              const std::vector<torch::Tensor>& constants = {});

// Samples of a batch that the graph takes: rows of its first input that has any; else 1.
std::int64_t samples_of(const ir::Graph& graph, const Batch& batch);

// The device that a step's parameters and buffers are on; a CPU where there are none. Throws
// Error(kUsage) naming two that are on different ones.
torch::Device device_of(const TrainingStep& step);

// The device that the variables are on; a CPU where there are none. Throws Error(kUsage) naming two
// that are on different ones.
torch::Device device_of(const ir::Graph& graph, const Bindings& bindings);

}  // namespace autodist::capture
