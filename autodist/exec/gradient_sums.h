// The gradients of a step's micro-batches, added up in their order and weighted by samples.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::exec {

class GradientSums {
 public:
  struct MicroBatch {
    std::int64_t samples;
    std::int64_t samples_before;  // of the step's earlier ones
    bool last;
  };

  explicit GradientSums(const ir::Graph& graph)
      : add_up_(graph.reduction == ir::Reduction::kSum), sums_(graph.variables.size()) {}

  // With what earlier micro-batches brought; of the last one, their mean over all samples (or their
  // sum, where the loss is one).
  torch::Tensor add(ir::VariableId variable, const torch::Tensor& gradient, MicroBatch micro) {
    if (micro.last && micro.samples_before == 0) return gradient;
    torch::Tensor& sum = sums_[variable.value];
    const torch::Tensor part =
        add_up_ ? gradient.clone() : gradient * static_cast<double>(micro.samples);
    sum = sum.defined() ? sum + part : part;
    return micro.last ? take(variable, micro.samples_before + micro.samples) : sum;
  }

  // What earlier micro-batches brought, where the last one has no samples. REQUIRES: `samples` of
  // theirs, above 0.
  torch::Tensor take(ir::VariableId variable, std::int64_t samples) {
    const torch::Tensor all = std::exchange(sums_[variable.value], {});
    return add_up_ ? all : all / static_cast<double>(samples);
  }

 private:
  bool add_up_;
  std::vector<torch::Tensor> sums_;  // by variable
};

}  // namespace autodist::exec
