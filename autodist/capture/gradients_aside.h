// Puts the user's gradients aside while it lives, so that those of one step start from nothing.
// Private to capture.

#pragma once

#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::capture {

class GradientsAside {
 public:
  // Of parameters, and of buffers that require gradients.
  explicit GradientsAside(const TrainingStep& step) {
    for (const auto* named : {&step.parameters, &step.buffers}) {
      for (const NamedTensor& each : *named) {
        if (!each.tensor.is_leaf()) continue;
        tensors_.push_back(each.tensor);
        gradients_.push_back(each.tensor.grad());
      }
    }
    for (at::Tensor& each : tensors_) each.mutable_grad() = at::Tensor();
  }
  ~GradientsAside() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].mutable_grad() = gradients_[i];
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace autodist::capture
