// GPT-2-style decoders (Radford et al., 2019): learned positions, pre-norm blocks, output tied to
// the token embedding. Names and shapes are Hugging Face's.

#include <cmath>
#include <limits>

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

struct GptSize {
  std::int64_t vocabulary, context, width, heads, layers;
  double dropout;
};

// A linear layer whose weight is [in, out], as the original has it.
struct Conv1D : nn::Module {
  Conv1D(std::int64_t in, std::int64_t out) {
    weight = register_parameter("weight", torch::empty({in, out}).normal_(0, 0.02));
    bias = register_parameter("bias", torch::zeros({out}));
  }

  torch::Tensor forward(const torch::Tensor& x) {  // [batch, tokens, in]
    const torch::Tensor flat = torch::addmm(bias, x.reshape({-1, x.size(2)}), weight);
    return flat.reshape({-1, x.size(1), weight.size(1)});
  }

  torch::Tensor weight, bias;
};

nn::LayerNorm gpt_norm(std::int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

struct GptAttention : nn::Module {
  explicit GptAttention(const GptSize& size) : heads(size.heads) {
    c_attn = register_module("c_attn", std::make_shared<Conv1D>(size.width, 3 * size.width));
    c_proj = register_module("c_proj", std::make_shared<Conv1D>(size.width, size.width));
    attn_dropout = register_module("attn_dropout", nn::Dropout(size.dropout));
    resid_dropout = register_module("resid_dropout", nn::Dropout(size.dropout));
  }

  // x: [batch, tokens, width]; later: [tokens, tokens], true where a token must not look.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& later) {
    const std::int64_t tokens = x.size(1);
    const std::int64_t width = x.size(2);
    const auto parts = c_attn->forward(x).chunk(3, -1);
    const auto by_head = [&](const torch::Tensor& t) {
      return t.reshape({-1, tokens, heads, width / heads}).transpose(1, 2);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
    const torch::Tensor scores =
        torch::matmul(by_head(parts[0]), by_head(parts[1]).transpose(-2, -1)) * scale;
    const torch::Tensor weights =
        torch::softmax(scores.masked_fill(later, -std::numeric_limits<double>::infinity()), -1);
    const torch::Tensor mixed = torch::matmul(attn_dropout(weights), by_head(parts[2]));
    return resid_dropout(c_proj->forward(mixed.transpose(1, 2).reshape({-1, tokens, width})));
  }

  std::int64_t heads;
  std::shared_ptr<Conv1D> c_attn, c_proj;
  nn::Dropout attn_dropout{nullptr}, resid_dropout{nullptr};
};

struct Mlp : nn::Module {
  explicit Mlp(const GptSize& size) {
    c_fc = register_module("c_fc", std::make_shared<Conv1D>(size.width, 4 * size.width));
    c_proj = register_module("c_proj", std::make_shared<Conv1D>(4 * size.width, size.width));
    dropout = register_module("dropout", nn::Dropout(size.dropout));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    // The approximation that the published weights were trained with.
    return dropout(c_proj->forward(torch::gelu(c_fc->forward(x), "tanh")));
  }

  std::shared_ptr<Conv1D> c_fc, c_proj;
  nn::Dropout dropout{nullptr};
};

struct GptLayer : nn::Module {
  explicit GptLayer(const GptSize& size) {
    ln_1 = register_module("ln_1", gpt_norm(size.width));
    attn = register_module("attn", std::make_shared<GptAttention>(size));
    ln_2 = register_module("ln_2", gpt_norm(size.width));
    mlp = register_module("mlp", std::make_shared<Mlp>(size));
  }

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& later) {
    x = x + attn->forward(ln_1(x), later);
    return x + mlp->forward(ln_2(x));
  }

  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  std::shared_ptr<GptAttention> attn;
  std::shared_ptr<Mlp> mlp;
};

struct Gpt : nn::Module {
  explicit Gpt(const GptSize& size)
      : positions(torch::arange(size.context)),
        later(torch::ones({size.context, size.context}, torch::kBool).triu(1)) {
    wte = register_module("wte", nn::Embedding(size.vocabulary, size.width));
    wpe = register_module("wpe", nn::Embedding(size.context, size.width));
    drop = register_module("drop", nn::Dropout(size.dropout));
    for (std::int64_t i = 0; i < size.layers; ++i) layers->push_back(GptLayer(size));
    register_module("h", layers);
    ln_f = register_module("ln_f", gpt_norm(size.width));
    const torch::NoGradGuard no_grad;
    wte->weight.normal_(0, 0.02);
    wpe->weight.normal_(0, 0.02);
  }

  // ids: [batch, tokens] -> logits [batch, tokens, vocabulary]
  torch::Tensor forward(const torch::Tensor& ids) {
    const std::int64_t tokens = ids.size(1);
    torch::Tensor x = drop(wte(ids) + wpe(positions.slice(0, 0, tokens)));
    const torch::Tensor hidden = later.slice(0, 0, tokens).slice(1, 0, tokens);
    for (const auto& layer : *layers) x = layer->as<GptLayer>()->forward(x, hidden);
    x = ln_f(x);
    const ModuleScope scope("head");
    return torch::matmul(x, wte->weight.t());
  }

  // With what is neither parameter nor buffer.
  void to(torch::Device device, bool non_blocking = false) override {
    nn::Module::to(device, non_blocking);
    positions = positions.to(device);
    later = later.to(device);
  }

  torch::Tensor positions, later;
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::Dropout drop{nullptr};
  nn::ModuleList layers;
  nn::LayerNorm ln_f{nullptr};
};

ModelInfo gpt(const std::string& name, const std::string& description, bool small,
              const GptSize& size) {
  const auto make = [=](const ModelOptions& options) {
    return finish_step(
        name, std::make_shared<Gpt>(size), options,
        [](Gpt& net, const Batch& batch) {
          const torch::Tensor logits = net.forward(batch[0]);
          const ModuleScope scope("loss");
          return F::cross_entropy(logits.reshape({-1, logits.size(-1)}), batch[1].reshape({-1}));
        },
        [](Gpt& net, const Batch& batch) { return net.forward(batch[0]); });
  };
  const auto data = [=](const ModelOptions& options, std::int64_t samples) -> Batch {
    const torch::Tensor tokens =
        counting_sequences(options, samples, size.context + 1, size.vocabulary, 3);
    return {tokens.slice(1, 0, size.context).contiguous(),
            tokens.slice(1, 1, size.context + 1).contiguous()};
  };
  return {name, description, small ? 8 : 1, "synthetic", small, make, data};
}

}  // namespace

std::vector<ModelInfo> gpt_models() {
  return {gpt("gpt-small", "decoder of two transformer layers, tied output", true,
              {96, 16, 32, 4, 2, 0}),
          gpt("gpt2", "decoder of 12 transformer layers, 1024 tokens", false,
              {50257, 1024, 768, 12, 12, 0.1})};
}

}  // namespace autodist::models
