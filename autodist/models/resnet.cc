// Residual networks with bottleneck blocks (He et al., CVPR 2016), the stride in the 3×3
// convolution. Names and shapes are torchvision's.

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kExpansion = 4;  // output channels of a block over its width

struct ResNetSize {
  std::vector<std::int64_t> blocks;  // per stage
  std::int64_t width;                // of the first stage
  std::int64_t image;
  std::int64_t classes;
};

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                       std::int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct Bottleneck : nn::Module {
  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride) {
    const std::int64_t out = width * kExpansion;
    conv1 = register_module("conv1", convolution(in, width, 1, 1));
    bn1 = register_module("bn1", nn::BatchNorm2d(width));
    conv2 = register_module("conv2", convolution(width, width, 3, stride));
    bn2 = register_module("bn2", nn::BatchNorm2d(width));
    conv3 = register_module("conv3", convolution(width, out, 1, 1));
    bn3 = register_module("bn3", nn::BatchNorm2d(out));
    if (stride != 1 || in != out) {
      downsample = register_module(
          "downsample", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(bn1(conv1(x)));
    y = torch::relu(bn2(conv2(y)));
    y = bn3(conv3(y));
    return torch::relu(y + (downsample ? downsample->forward(x) : x));
  }

  nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  nn::Sequential downsample{nullptr};
};

struct ResNet : nn::Module {
  explicit ResNet(const ResNetSize& size) {
    std::int64_t channels = size.width;
    conv1 = register_module("conv1", convolution(3, channels, 7, 2));
    bn1 = register_module("bn1", nn::BatchNorm2d(channels));
    for (std::size_t stage = 0; stage < size.blocks.size(); ++stage) {
      const std::int64_t width = size.width << stage;
      nn::Sequential blocks;
      for (std::int64_t block = 0; block < size.blocks[stage]; ++block) {
        const std::int64_t stride = block == 0 && stage > 0 ? 2 : 1;
        blocks->push_back(Bottleneck(channels, width, stride));
        channels = width * kExpansion;
      }
      stages.push_back(register_module("layer" + std::to_string(stage + 1), blocks));
    }
    fc = register_module("fc", nn::Linear(channels, size.classes));
  }

  // images [batch, 3, size, size] -> logits [batch, classes]
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(bn1(conv1(x))), 3, 2, 1);
    for (nn::Sequential& stage : stages) x = stage->forward(x);
    return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  nn::Conv2d conv1{nullptr};
  nn::BatchNorm2d bn1{nullptr};
  std::vector<nn::Sequential> stages;
  nn::Linear fc{nullptr};
};

}  // namespace

std::vector<ModelInfo> resnet_models() {
  return {
      image_classifier<ResNet>("resnet-small", "residual network, a block per stage, 64x64 images",
                               true, ResNetSize{{1, 1, 1, 1}, 8, 64, 10}),
      image_classifier<ResNet>("resnet50", "residual network of 50 layers, 224x224 images", false,
                               ResNetSize{{3, 4, 6, 3}, 64, 224, 1000}),
      image_classifier<ResNet>("resnet101", "residual network of 101 layers, 224x224 images", false,
                               ResNetSize{{3, 4, 23, 3}, 64, 224, 1000})};
}

}  // namespace autodist::models
