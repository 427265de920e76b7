// Densely connected networks (Huang et al., CVPR 2017), with bottlenecks and compression. Names and
// shapes are torchvision's.

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kBottleneck = 4;  // width of a layer's 1×1 convolution over the growth

struct DenseNetSize {
  std::vector<std::int64_t> layers;  // per block
  std::int64_t growth;
  std::int64_t stem;  // channels after the first convolution
  std::int64_t image;
  std::int64_t classes;
};

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).padding(kernel / 2).bias(false));
}

struct DenseLayer : nn::Module {
  DenseLayer(std::int64_t in, std::int64_t growth) {
    norm1 = register_module("norm1", nn::BatchNorm2d(in));
    conv1 = register_module("conv1", convolution(in, kBottleneck * growth, 1));
    norm2 = register_module("norm2", nn::BatchNorm2d(kBottleneck * growth));
    conv2 = register_module("conv2", convolution(kBottleneck * growth, growth, 3));
  }

  // Appends its features to all that came before.
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor narrow = conv1(torch::relu(norm1(x)));
    return torch::cat({x, conv2(torch::relu(norm2(narrow)))}, 1);
  }

  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
};

struct DenseBlock : nn::Module {
  DenseBlock(std::int64_t in, std::int64_t growth, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      layers.push_back(register_module("denselayer" + std::to_string(i + 1),
                                       std::make_shared<DenseLayer>(in + i * growth, growth)));
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : layers) x = layer->forward(x);
    return x;
  }

  std::vector<std::shared_ptr<DenseLayer>> layers;
};

// Halves the channels and the sides of the maps.
struct Transition : nn::Module {
  explicit Transition(std::int64_t in) {
    norm = register_module("norm", nn::BatchNorm2d(in));
    conv = register_module("conv", convolution(in, in / 2, 1));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::avg_pool2d(conv(torch::relu(norm(x))), 2, 2);
  }

  nn::BatchNorm2d norm{nullptr};
  nn::Conv2d conv{nullptr};
};

nn::Sequential features_of(const DenseNetSize& size, std::int64_t& channels) {
  nn::Sequential features;
  channels = size.stem;
  features->push_back(
      "conv0", nn::Conv2d(nn::Conv2dOptions(3, channels, 7).stride(2).padding(3).bias(false)));
  features->push_back("norm0", nn::BatchNorm2d(channels));
  features->push_back("relu0", nn::ReLU());
  features->push_back("pool0", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  for (std::size_t i = 0; i < size.layers.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    features->push_back("denseblock" + number, DenseBlock(channels, size.growth, size.layers[i]));
    channels += size.layers[i] * size.growth;
    if (i + 1 == size.layers.size()) break;
    features->push_back("transition" + number, Transition(channels));
    channels /= 2;
  }
  features->push_back("norm5", nn::BatchNorm2d(channels));
  return features;
}

struct DenseNet : nn::Module {
  explicit DenseNet(const DenseNetSize& size) {
    std::int64_t channels = 0;
    features = register_module("features", features_of(size, channels));
    classifier = register_module("classifier", nn::Linear(channels, size.classes));
  }

  // images [batch, 3, size, size] -> logits [batch, classes]
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor maps = torch::relu(features->forward(x));
    return classifier(torch::adaptive_avg_pool2d(maps, {1, 1}).flatten(1));
  }

  nn::Sequential features{nullptr};
  nn::Linear classifier{nullptr};
};

}  // namespace

std::vector<ModelInfo> densenet_models() {
  return {
      image_classifier<DenseNet>("densenet-small", "two dense blocks of two layers, 32x32 images",
                                 true, DenseNetSize{{2, 2}, 8, 16, 32, 10}),
      image_classifier<DenseNet>("densenet121",
                                 "densely connected network of 121 layers, 224x224 images", false,
                                 DenseNetSize{{6, 12, 24, 16}, 32, 64, 224, 1000})};
}

}  // namespace autodist::models
