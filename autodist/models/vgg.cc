// Plain stacks of 3×3 convolutions (Simonyan and Zisserman, ICLR 2015), without batch norm. Names
// and shapes are torchvision's.

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;

struct VggSize {
  std::vector<std::vector<std::int64_t>> groups;  // channels of convolutions between poolings
  std::int64_t pooled;                            // side of the pooled features
  std::int64_t hidden;                            // of the classifier
  std::int64_t image;
  std::int64_t classes;
};

struct Vgg : nn::Module {
  explicit Vgg(const VggSize& size) : pooled(size.pooled) {
    std::int64_t channels = 3;
    for (const auto& group : size.groups) {
      for (const std::int64_t out : group) {
        features->push_back(nn::Conv2d(nn::Conv2dOptions(channels, out, 3).padding(1)));
        features->push_back(nn::ReLU());
        channels = out;
      }
      features->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(2)));
    }
    register_module("features", features);
    classifier = register_module(
        "classifier",
        nn::Sequential(nn::Linear(channels * pooled * pooled, size.hidden), nn::ReLU(),
                       nn::Dropout(0.5), nn::Linear(size.hidden, size.hidden), nn::ReLU(),
                       nn::Dropout(0.5), nn::Linear(size.hidden, size.classes)));
  }

  // images [batch, 3, size, size] -> logits [batch, classes]
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor maps = torch::adaptive_avg_pool2d(features->forward(x), {pooled, pooled});
    return classifier->forward(maps.flatten(1));
  }

  std::int64_t pooled;
  nn::Sequential features;
  nn::Sequential classifier{nullptr};
};

}  // namespace

std::vector<ModelInfo> vgg_models() {
  return {
      image_classifier<Vgg>("vgg-small", "four 3x3 convolutions, 16x16 images", true,
                            VggSize{{{8, 8}, {16, 16}}, 4, 32, 16, 10}),
      image_classifier<Vgg>(
          "vgg16-small", "VGG-16's layers at a quarter of their width, 32x32 images", true,
          VggSize{{{16, 16}, {32, 32}, {64, 64, 64}, {128, 128, 128}, {128, 128, 128}},
                  1,
                  1024,
                  32,
                  100}),
      image_classifier<Vgg>(
          "vgg16", "13 convolutions and 3 linear layers, 224x224 images", false,
          VggSize{{{64, 64}, {128, 128}, {256, 256, 256}, {512, 512, 512}, {512, 512, 512}},
                  7,
                  4096,
                  224,
                  1000}),
      image_classifier<Vgg>("vgg19", "16 convolutions and 3 linear layers, 224x224 images", false,
                            VggSize{{{64, 64},
                                     {128, 128},
                                     {256, 256, 256, 256},
                                     {512, 512, 512, 512},
                                     {512, 512, 512, 512}},
                                    7,
                                    4096,
                                    224,
                                    1000})};
}

}  // namespace autodist::models
