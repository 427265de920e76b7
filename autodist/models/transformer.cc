// A GPT-2-style decoder (Radford et al., 2019): learned positions, pre-norm blocks, output tied to
// the token embedding.

#include <cmath>

#include "autodist/capture/module_scope.h"
#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

struct GptSize {
  std::int64_t vocabulary, context, width, heads, layers;
};
constexpr GptSize kSmall{96, 16, 32, 4, 2};

struct Attention : nn::Module {
  Attention(std::int64_t width, std::int64_t head_count) : heads(head_count) {
    c_attn = register_module("c_attn", nn::Linear(width, 3 * width));
    c_proj = register_module("c_proj", nn::Linear(width, width));
  }

  // x: [batch, tokens, width]; mask: [tokens, tokens], 0 or -inf.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const std::int64_t tokens = x.size(1);
    const std::int64_t width = x.size(2);
    const auto parts = c_attn(x).chunk(3, -1);
    const auto by_head = [&](const torch::Tensor& t) {
      return t.reshape({-1, tokens, heads, width / heads}).transpose(1, 2);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
    torch::Tensor weights =
        torch::matmul(by_head(parts[0]), by_head(parts[1]).transpose(-2, -1)) * scale + mask;
    weights = torch::softmax(weights, -1);
    const torch::Tensor mixed = torch::matmul(weights, by_head(parts[2]));
    return c_proj(mixed.transpose(1, 2).reshape({-1, tokens, width}));
  }

  std::int64_t heads;
  nn::Linear c_attn{nullptr}, c_proj{nullptr};
};

struct Block : nn::Module {
  Block(std::int64_t width, std::int64_t heads) {
    ln_1 = register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({width})));
    attn = register_module("attn", std::make_shared<Attention>(width, heads));
    ln_2 = register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({width})));
    c_fc = register_module("c_fc", nn::Linear(width, 4 * width));
    c_proj = register_module("c_proj", nn::Linear(4 * width, width));
  }

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {
    {
      const ModuleScope scope("attn");
      x = x + attn->forward(ln_1(x), mask);
    }
    const ModuleScope scope("mlp");
    return x + c_proj(torch::gelu(c_fc(ln_2(x))));
  }

  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  std::shared_ptr<Attention> attn;
  nn::Linear c_fc{nullptr}, c_proj{nullptr};
};

struct Gpt : nn::Module {
  explicit Gpt(const GptSize& size) {
    wte = register_module("wte", nn::Embedding(size.vocabulary, size.width));
    wpe = register_module("wpe", nn::Embedding(size.context, size.width));
    for (std::int64_t i = 0; i < size.layers; ++i) {
      blocks.push_back(register_module("h" + std::to_string(i),
                                       std::make_shared<Block>(size.width, size.heads)));
    }
    ln_f = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({size.width})));
    positions = register_buffer("positions", torch::arange(size.context));
    mask = register_buffer(
        "mask", torch::full({size.context, size.context}, -std::numeric_limits<double>::infinity())
                    .triu(1));
    const torch::NoGradGuard no_grad;
    wte->weight.mul_(0.02);
    wpe->weight.mul_(0.02);
  }

  // ids: [batch, tokens] -> logits [batch, tokens, vocabulary]
  torch::Tensor forward(const torch::Tensor& ids) {
    const std::int64_t tokens = ids.size(1);
    torch::Tensor x;
    {
      const ModuleScope scope("embed");
      x = wte(ids) + wpe(positions.slice(0, 0, tokens));
    }
    const torch::Tensor visible = mask.slice(0, 0, tokens).slice(1, 0, tokens);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const ModuleScope scope("h" + std::to_string(i));
      x = blocks[i]->forward(x, visible);
    }
    const ModuleScope scope("head");
    return torch::matmul(ln_f(x), wte->weight.t());
  }

  nn::Embedding wte{nullptr}, wpe{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  nn::LayerNorm ln_f{nullptr};
  torch::Tensor positions, mask;
};

}  // namespace

TrainingStep make_gpt_small(const ModelOptions& options) {
  return finish_step(
      "gpt-small", std::make_shared<Gpt>(kSmall), options,
      [](Gpt& net, const Batch& batch) {
        const torch::Tensor logits = net.forward(batch[0]);
        const ModuleScope scope("loss");
        return F::cross_entropy(logits.reshape({-1, logits.size(-1)}), batch[1].reshape({-1}));
      },
      [](Gpt& net, const Batch& batch) { return net.forward(batch[0]); });
}

// Sequences that count upwards from a random token, with a stride from 1 to 3.
Batch gpt_small_tokens(const ModelOptions& options, std::int64_t samples) {
  torch::Generator generator = generator_for(options.seed);
  const torch::Tensor start =
      torch::randint(0, kSmall.vocabulary, {samples, 1}, generator, torch::kInt64);
  const torch::Tensor stride = torch::randint(1, 4, {samples, 1}, generator, torch::kInt64);
  const torch::Tensor tokens =
      (start + stride * torch::arange(kSmall.context + 1)).remainder(kSmall.vocabulary);
  return {tokens.slice(1, 0, kSmall.context).contiguous(),
          tokens.slice(1, 1, kSmall.context + 1).contiguous()};
}

}  // namespace autodist::models
