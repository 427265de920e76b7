// The network of the demo: two convolutions and two linear layers on 8×8 images.

#include "autodist/capture/module_scope.h"
#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
using capture::ModuleScope;

struct DigitsNet : nn::Module {
  explicit DigitsNet(bool normalised) {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
    if (normalised) norm1 = register_module("norm1", nn::BatchNorm2d(16));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
    if (normalised) {
      norm2 = register_module("norm2", nn::BatchNorm2d(32));
      dropout = register_module("dropout", nn::Dropout(0.25));
    }
    fc1 = register_module("fc1", nn::Linear(32 * 4 * 4, 64));
    fc2 = register_module("fc2", nn::Linear(64, 10));
  }

  torch::Tensor forward(torch::Tensor x) {
    {
      const ModuleScope scope("conv1");
      x = conv1(x);
      if (norm1) x = norm1(x);
      x = torch::relu(x);
    }
    {
      const ModuleScope scope("conv2");
      x = conv2(x);
      if (norm2) x = norm2(x);
      x = torch::max_pool2d(torch::relu(x), 2).flatten(1);
    }
    {
      const ModuleScope scope("fc1");
      x = torch::relu(fc1(x));
      if (dropout) x = dropout(x);
    }
    const ModuleScope scope("fc2");
    return fc2(x);
  }

  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  nn::Dropout dropout{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr};
};

// Images whose class shows as a bright row, so that the loss can fall.
Batch digits_like(const ModelOptions& options, std::int64_t samples) {
  return banded_images(options, samples, 1, 8, 10);
}

}  // namespace

std::vector<ModelInfo> digits_models() {
  const auto maker = [](const std::string& name, bool normalised) {
    return [=](const ModelOptions& options) {
      return make_classifier(name, std::make_shared<DigitsNet>(normalised), options);
    };
  };
  return {{"digits", "convolutional network on 8x8 images of digits", 32, "digits", true,
           maker("digits", false), digits_like},
          {"digits-norm", "the same with batch norm and dropout", 32, "digits", true,
           maker("digits-norm", true), digits_like}};
}

}  // namespace autodist::models
