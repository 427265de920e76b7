// Inception-v3 (Szegedy et al., CVPR 2016) without its auxiliary classifier. Names and shapes are
// torchvision's.

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;

// Every width of the published network is divided by `divisor`.
struct InceptionSize {
  std::int64_t divisor;
  std::int64_t image;
  std::int64_t classes;
};

struct Kernel {
  std::int64_t height;
  std::int64_t width;
};

// A convolution, batch norm and ReLU.
struct BasicConv2d : nn::Module {
  BasicConv2d(std::int64_t in, std::int64_t out, Kernel kernel, std::int64_t stride, bool padded) {
    auto options = nn::Conv2dOptions(in, out, {kernel.height, kernel.width});
    options.stride(stride).bias(false);
    if (padded) options.padding({kernel.height / 2, kernel.width / 2});
    conv = register_module("conv", nn::Conv2d(options));
    bn = register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(out).eps(1e-3)));
  }

  torch::Tensor forward(const torch::Tensor& x) { return torch::relu(bn(conv(x))); }

  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d bn{nullptr};
};
using Convolution = std::shared_ptr<BasicConv2d>;

// What the blocks share: convolutions by torchvision's names.
struct Block : nn::Module {
  explicit Block(std::int64_t divisor) : divisor(divisor) {}

  Convolution add(const std::string& name, std::int64_t in, std::int64_t out, Kernel kernel,
                  std::int64_t stride = 1, bool padded = true) {
    return register_module(
        name, std::make_shared<BasicConv2d>(in, out / divisor, kernel, stride, padded));
  }
  // Between convolutions of the block.
  Convolution inner(const std::string& name, std::int64_t in, std::int64_t out, Kernel kernel,
                    std::int64_t stride = 1, bool padded = true) {
    return add(name, in / divisor, out, kernel, stride, padded);
  }

  virtual torch::Tensor forward(const torch::Tensor& x) = 0;

  std::int64_t divisor;
};

torch::Tensor pooled(const torch::Tensor& x) { return torch::avg_pool2d(x, 3, 1, 1); }

torch::Tensor through(const std::vector<Convolution>& chain, torch::Tensor x) {
  for (const Convolution& convolution : chain) x = convolution->forward(x);
  return x;
}

// 35×35 maps.
struct InceptionA : Block {
  InceptionA(std::int64_t in, std::int64_t pool_width, std::int64_t divisor) : Block(divisor) {
    one = {add("branch1x1", in, 64, {1, 1})};
    five = {add("branch5x5_1", in, 48, {1, 1}), inner("branch5x5_2", 48, 64, {5, 5})};
    three = {add("branch3x3dbl_1", in, 64, {1, 1}), inner("branch3x3dbl_2", 64, 96, {3, 3}),
             inner("branch3x3dbl_3", 96, 96, {3, 3})};
    pool = {add("branch_pool", in, pool_width, {1, 1})};
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return torch::cat(
        {through(one, x), through(five, x), through(three, x), through(pool, pooled(x))}, 1);
  }
  std::vector<Convolution> one, five, three, pool;
};

// 35×35 to 17×17.
struct InceptionB : Block {
  InceptionB(std::int64_t in, std::int64_t divisor) : Block(divisor) {
    three = {add("branch3x3", in, 384, {3, 3}, 2, false)};
    twice = {add("branch3x3dbl_1", in, 64, {1, 1}), inner("branch3x3dbl_2", 64, 96, {3, 3}),
             inner("branch3x3dbl_3", 96, 96, {3, 3}, 2, false)};
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return torch::cat({through(three, x), through(twice, x), torch::max_pool2d(x, 3, 2)}, 1);
  }
  std::vector<Convolution> three, twice;
};

// 17×17 maps, convolutions of seven in two strokes.
struct InceptionC : Block {
  InceptionC(std::int64_t in, std::int64_t width, std::int64_t divisor) : Block(divisor) {
    one = {add("branch1x1", in, 192, {1, 1})};
    seven = {add("branch7x7_1", in, width, {1, 1}), inner("branch7x7_2", width, width, {1, 7}),
             inner("branch7x7_3", width, 192, {7, 1})};
    twice = {
        add("branch7x7dbl_1", in, width, {1, 1}), inner("branch7x7dbl_2", width, width, {7, 1}),
        inner("branch7x7dbl_3", width, width, {1, 7}),
        inner("branch7x7dbl_4", width, width, {7, 1}), inner("branch7x7dbl_5", width, 192, {1, 7})};
    pool = {add("branch_pool", in, 192, {1, 1})};
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return torch::cat(
        {through(one, x), through(seven, x), through(twice, x), through(pool, pooled(x))}, 1);
  }
  std::vector<Convolution> one, seven, twice, pool;
};

// 17×17 to 8×8.
struct InceptionD : Block {
  InceptionD(std::int64_t in, std::int64_t divisor) : Block(divisor) {
    three = {add("branch3x3_1", in, 192, {1, 1}), inner("branch3x3_2", 192, 320, {3, 3}, 2, false)};
    seven = {add("branch7x7x3_1", in, 192, {1, 1}), inner("branch7x7x3_2", 192, 192, {1, 7}),
             inner("branch7x7x3_3", 192, 192, {7, 1}),
             inner("branch7x7x3_4", 192, 192, {3, 3}, 2, false)};
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return torch::cat({through(three, x), through(seven, x), torch::max_pool2d(x, 3, 2)}, 1);
  }
  std::vector<Convolution> three, seven;
};

// 8×8 maps, with branches that fork.
struct InceptionE : Block {
  InceptionE(std::int64_t in, std::int64_t divisor) : Block(divisor) {
    one = {add("branch1x1", in, 320, {1, 1})};
    three = {add("branch3x3_1", in, 384, {1, 1})};
    three_fork = {inner("branch3x3_2a", 384, 384, {1, 3}), inner("branch3x3_2b", 384, 384, {3, 1})};
    twice = {add("branch3x3dbl_1", in, 448, {1, 1}), inner("branch3x3dbl_2", 448, 384, {3, 3})};
    twice_fork = {inner("branch3x3dbl_3a", 384, 384, {1, 3}),
                  inner("branch3x3dbl_3b", 384, 384, {3, 1})};
    pool = {add("branch_pool", in, 192, {1, 1})};
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor y = through(three, x);
    const torch::Tensor z = through(twice, x);
    return torch::cat(
        {through(one, x), three_fork[0]->forward(y), three_fork[1]->forward(y),
         twice_fork[0]->forward(z), twice_fork[1]->forward(z), through(pool, pooled(x))},
        1);
  }
  std::vector<Convolution> one, three, three_fork, twice, twice_fork, pool;
};

struct Inception : Block {
  explicit Inception(const InceptionSize& size) : Block(size.divisor) {
    stem = {add("Conv2d_1a_3x3", 3, 32, {3, 3}, 2, false),
            inner("Conv2d_2a_3x3", 32, 32, {3, 3}, 1, false),
            inner("Conv2d_2b_3x3", 32, 64, {3, 3})};
    neck = {inner("Conv2d_3b_1x1", 64, 80, {1, 1}, 1, false),
            inner("Conv2d_4a_3x3", 80, 192, {3, 3}, 1, false)};
    const std::int64_t d = divisor;
    append<InceptionA>("Mixed_5b", 192 / d, 32, d);
    append<InceptionA>("Mixed_5c", 256 / d, 64, d);
    append<InceptionA>("Mixed_5d", 288 / d, 64, d);
    append<InceptionB>("Mixed_6a", 288 / d, d);
    append<InceptionC>("Mixed_6b", 768 / d, 128, d);
    append<InceptionC>("Mixed_6c", 768 / d, 160, d);
    append<InceptionC>("Mixed_6d", 768 / d, 160, d);
    append<InceptionC>("Mixed_6e", 768 / d, 192, d);
    append<InceptionD>("Mixed_7a", 768 / d, d);
    append<InceptionE>("Mixed_7b", 1280 / d, d);
    append<InceptionE>("Mixed_7c", 2048 / d, d);
    dropout = register_module("dropout", nn::Dropout(0.5));
    fc = register_module("fc", nn::Linear(2048 / d, size.classes));
  }

  // images [batch, 3, size, size] -> logits [batch, classes]
  torch::Tensor forward(const torch::Tensor& images) override {
    torch::Tensor x = torch::max_pool2d(through(stem, images), 3, 2);
    x = torch::max_pool2d(through(neck, x), 3, 2);
    for (const auto& block : mixed) x = block->forward(x);
    return fc(dropout(torch::adaptive_avg_pool2d(x, {1, 1})).flatten(1));
  }

  template <typename Kind, typename... Widths>
  void append(const std::string& name, Widths... widths) {
    mixed.push_back(register_module(name, std::make_shared<Kind>(widths...)));
  }

  std::vector<Convolution> stem, neck;
  std::vector<std::shared_ptr<Block>> mixed;
  nn::Dropout dropout{nullptr};
  nn::Linear fc{nullptr};
};

}  // namespace

std::vector<ModelInfo> inception_models() {
  return {image_classifier<Inception>("inception-small", "Inception-v3 of a sixteenth of the width",
                                      true, InceptionSize{16, 107, 10}),
          image_classifier<Inception>("inception-v3", "Inception-v3, 299x299 images", false,
                                      InceptionSize{1, 299, 1000})};
}

}  // namespace autodist::models
