// Recurrent language models: a small one with a full softmax, and the one of the One Billion Word
// benchmark (Jozefowicz et al., 2016: LSTM-2048-512) with a sampled softmax, whose candidates are
// an input of the step.

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
  torch::Tensor forward(const torch::Tensor& ids) { return out(std::get<0>(lstm(embed(ids)))); }

  nn::Embedding embed{nullptr};
  nn::LSTM lstm{nullptr};
  nn::Linear out{nullptr};
};

Batch next_tokens(const ModelOptions& options, std::int64_t samples, std::int64_t tokens,
                  std::int64_t vocabulary) {
  const torch::Tensor all = counting_sequences(options, samples, tokens + 1, vocabulary, 1);
  return {all.slice(1, 0, tokens).contiguous(), all.slice(1, 1, tokens + 1).contiguous()};
}

TrainingStep make_lstm(const ModelOptions& options) {
  return finish_step(
      "lstm-small", std::make_shared<LstmNet>(), options,
      [](LstmNet& net, const Batch& batch) {
        const torch::Tensor logits = net.forward(batch[0]);
        const ModuleScope scope("loss");
        return F::cross_entropy(logits.reshape({-1, kVocabulary}), batch[1].reshape({-1}));
      },
      [](LstmNet& net, const Batch& batch) { return net.forward(batch[0]); });
}

struct Lm1bSize {
  std::int64_t vocabulary, width, hidden;  // of words; of embedding and projection; of the cell
  std::int64_t tokens, candidates;
};

struct Lm1b : nn::Module {
  explicit Lm1b(const Lm1bSize& size) {
    const auto table = [&](const char* name, std::int64_t width) {
      auto rows = register_module(
          name, nn::Embedding(nn::EmbeddingOptions(size.vocabulary, width).sparse(true)));
      const torch::NoGradGuard no_grad;
      width == 1 ? rows->weight.zero_() : rows->weight.uniform_(-0.1, 0.1);
      return rows;
    };
    embedding = table("embedding", size.width);
    lstm = register_module(
        "lstm",
        nn::LSTM(nn::LSTMOptions(size.width, size.hidden).proj_size(size.width).batch_first(true)));
    softmax_w = table("softmax_w", size.width);
    softmax_b = table("softmax_b", 1);
  }

  // ids: [batch, tokens] -> states [batch * tokens, width]
  torch::Tensor states(const torch::Tensor& ids) {
    return std::get<0>(lstm(embedding(ids))).flatten(0, 1);
  }

  // Scores of the right words against those of the candidates (drawn uniformly, so that their
  // probabilities cancel): [batch * tokens, 1 + candidates], the right one first. A candidate that
  // happens to be right does not count twice.
  torch::Tensor scores(const torch::Tensor& states, const torch::Tensor& right,
                       const torch::Tensor& candidates) {
    // One look-up: the sum of two sparse gradients has a size that depends on data.
    const torch::Tensor words = torch::cat({right, candidates});
    const auto weights = softmax_w(words).split_with_sizes({right.size(0), candidates.size(0)});
    const auto biases = softmax_b(words).split_with_sizes({right.size(0), candidates.size(0)});
    const torch::Tensor own = (states * weights[0]).sum(1, true) + biases[0];
    const torch::Tensor others = torch::matmul(states, weights[1].t()) + biases[1].t();
    const torch::Tensor hit = right.unsqueeze(1).eq(candidates.unsqueeze(0));
    return torch::cat({own, others.masked_fill(hit, -1e9)}, 1);
  }

  nn::Embedding embedding{nullptr}, softmax_w{nullptr}, softmax_b{nullptr};
  nn::LSTM lstm{nullptr};
};

// A batch: words, the words that follow, and the candidates, which are no part of the batch.
torch::Tensor sampled_loss(Lm1b& net, const Batch& batch) {
  const torch::Tensor states = net.states(batch[0]);
  const ModuleScope scope("sampled_softmax");
  const torch::Tensor scores = net.scores(states, batch[1].flatten(), batch[2]);
  return F::cross_entropy(scores, torch::zeros_like(batch[1].flatten()));
}

ModelInfo lm1b(const std::string& name, const std::string& description, bool small,
               const Lm1bSize& size) {
  const auto make = [=](const ModelOptions& options) {
    TrainingStep step = finish_step(name, std::make_shared<Lm1b>(size), options, sampled_loss,
                                    [](Lm1b& net, const Batch& batch) {
                                      const torch::Tensor states = net.states(batch[0]);
                                      return net.scores(states, batch[1].flatten(), batch[2])
                                          .view({batch[0].size(0), batch[0].size(1), -1});
                                    });
    step.batched = {true, true, false};
    return step;
  };
  const auto data = [=](const ModelOptions& options, std::int64_t samples) {
    Batch batch = next_tokens(options, samples, size.tokens, size.vocabulary);
    torch::Generator generator = generator_for(options.seed + 1);
    batch.push_back(
        torch::randint(0, size.vocabulary, {size.candidates}, generator, torch::kInt64));
    return batch;
  };
  return {name, description, small ? 8 : 1, "synthetic", small, make, data};
}

}  // namespace

std::vector<ModelInfo> lstm_models() {
  const auto tokens = [](const ModelOptions& options, std::int64_t samples) {
    return next_tokens(options, samples, kTokens, kVocabulary);
  };
  return {{"lstm-small", "recurrent language model", 16, "synthetic", true, make_lstm, tokens},
          lm1b("lm1b-small", "the same with a sampled softmax and sparse gradients", true,
               {200, 16, 32, 6, 24}),
          lm1b("lm1b", "LSTM-2048-512 over 793,471 words, 8,192 sampled", false,
               {793471, 512, 2048, 20, 8192})};
}

}  // namespace autodist::models
