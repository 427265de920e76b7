// Puts the user's gradients aside while it lives, so that those of one step start from nothing.
// Private to capture.

#pragma once

#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::capture {

class GradientsAside {
 public:
  explicit GradientsAside(const std::vector<NamedTensor>& parameters) {
    for (const NamedTensor& each : parameters) {
      parameters_.push_back(each.tensor);
      gradients_.push_back(each.tensor.grad());
    }
    for (at::Tensor& each : parameters_) each.mutable_grad() = at::Tensor();
  }
  ~GradientsAside() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mutable_grad() = gradients_[i];
    }
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace autodist::capture
