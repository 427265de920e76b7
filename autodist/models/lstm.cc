// A recurrent language model: embedding, LSTM, full softmax.

#include "autodist/capture/module_scope.h"
#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

constexpr std::int64_t kVocabulary = 64;
constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kWidth = 32;

struct LstmNet : nn::Module {
  LstmNet() {
    embed = register_module("embed", nn::Embedding(kVocabulary, kWidth));
    lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(kWidth, 2 * kWidth).batch_first(true)));
    out = register_module("out", nn::Linear(2 * kWidth, kVocabulary));
  }

  // ids: [batch, tokens] -> logits [batch, tokens, vocabulary]
  torch::Tensor forward(const torch::Tensor& ids) {
    torch::Tensor x;
    {
      const ModuleScope scope("embed");
      x = embed(ids);
    }
    {
      const ModuleScope scope("lstm");
      x = std::get<0>(lstm(x));
    }
    const ModuleScope scope("out");
    return out(x);
  }

  nn::Embedding embed{nullptr};
  nn::LSTM lstm{nullptr};
  nn::Linear out{nullptr};
};

}  // namespace

TrainingStep make_lstm_small(const ModelOptions& options) {
  return finish_step(
      "lstm-small", std::make_shared<LstmNet>(), options,
      [](LstmNet& net, const Batch& batch) {
        const torch::Tensor logits = net.forward(batch[0]);
        const ModuleScope scope("loss");
        return F::cross_entropy(logits.reshape({-1, kVocabulary}), batch[1].reshape({-1}));
      },
      [](LstmNet& net, const Batch& batch) { return net.forward(batch[0]); });
}

// Sequences that count upwards from a random token.
Batch lstm_small_tokens(const ModelOptions& options, std::int64_t samples) {
  torch::Generator generator = generator_for(options.seed);
  const torch::Tensor start =
      torch::randint(0, kVocabulary, {samples, 1}, generator, torch::kInt64);
  const torch::Tensor tokens = (start + torch::arange(kTokens + 1)).remainder(kVocabulary);
  return {tokens.slice(1, 0, kTokens).contiguous(), tokens.slice(1, 1, kTokens + 1).contiguous()};
}

}  // namespace autodist::models
