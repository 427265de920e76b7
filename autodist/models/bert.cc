// Bidirectional encoders (Devlin et al., NAACL 2019). Names and shapes are those of Hugging Face's
// BertModel, with its pooler. Both heads of the pre-training are tied, so that the parameters are
// the published model's and no more: a masked token is scored by the word embedding, "is the second
// sentence the next one" by the two token types' embedding.

#include <cmath>

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

struct BertSize {
  std::int64_t vocabulary, positions, width, heads, layers;
  std::int64_t tokens;  // of the example
};

// One token of seven is hidden (the paper: 15 %).
constexpr std::int64_t kHideEvery = 7;
constexpr std::int64_t kMaskToken = 1;
constexpr double kDropout = 0.1;

nn::LayerNorm bert_norm(std::int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}).eps(1e-12));
}

struct Embeddings : nn::Module {
  explicit Embeddings(const BertSize& size) : positions(torch::arange(size.positions)) {
    word_embeddings =
        register_module("word_embeddings", nn::Embedding(size.vocabulary, size.width));
    position_embeddings =
        register_module("position_embeddings", nn::Embedding(size.positions, size.width));
    token_type_embeddings = register_module("token_type_embeddings", nn::Embedding(2, size.width));
    norm = register_module("LayerNorm", bert_norm(size.width));
    dropout = register_module("dropout", nn::Dropout(kDropout));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& table : parameters()) {
      if (table.dim() == 2) table.normal_(0, 0.02);
    }
  }

  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& types) {
    const torch::Tensor places = positions.slice(0, 0, ids.size(1));
    return dropout(
        norm(word_embeddings(ids) + position_embeddings(places) + token_type_embeddings(types)));
  }

  // With what is neither parameter nor buffer.
  void to(torch::Device device, bool non_blocking = false) override {
    nn::Module::to(device, non_blocking);
    positions = positions.to(device);
  }

  torch::Tensor positions;
  nn::Embedding word_embeddings{nullptr}, position_embeddings{nullptr};
  nn::Embedding token_type_embeddings{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Dropout dropout{nullptr};
};

struct SelfAttention : nn::Module {
  SelfAttention(std::int64_t width, std::int64_t head_count) : heads(head_count) {
    query = register_module("query", nn::Linear(width, width));
    key = register_module("key", nn::Linear(width, width));
    value = register_module("value", nn::Linear(width, width));
    dropout = register_module("dropout", nn::Dropout(kDropout));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const std::int64_t tokens = x.size(1);
    const std::int64_t width = x.size(2);
    const auto by_head = [&](const torch::Tensor& t) {
      return t.reshape({-1, tokens, heads, width / heads}).transpose(1, 2);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(width / heads));
    const torch::Tensor scores =
        torch::matmul(by_head(query(x)), by_head(key(x)).transpose(-2, -1)) * scale;
    const torch::Tensor mixed =
        torch::matmul(dropout(torch::softmax(scores, -1)), by_head(value(x)));
    return mixed.transpose(1, 2).reshape({-1, tokens, width});
  }

  std::int64_t heads;
  nn::Linear query{nullptr}, key{nullptr}, value{nullptr};
  nn::Dropout dropout{nullptr};
};

// What follows attention and the wide layer alike: back to the width, plus the input, normalised.
struct Residual : nn::Module {
  Residual(std::int64_t in, std::int64_t width) {
    dense = register_module("dense", nn::Linear(in, width));
    norm = register_module("LayerNorm", bert_norm(width));
    dropout = register_module("dropout", nn::Dropout(kDropout));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& input) {
    return norm(dropout(dense(x)) + input);
  }

  nn::Linear dense{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Dropout dropout{nullptr};
};

struct BertAttention : nn::Module {
  explicit BertAttention(const BertSize& size) {
    self = register_module("self", std::make_shared<SelfAttention>(size.width, size.heads));
    output = register_module("output", std::make_shared<Residual>(size.width, size.width));
  }

  torch::Tensor forward(const torch::Tensor& x) { return output->forward(self->forward(x), x); }

  std::shared_ptr<SelfAttention> self;
  std::shared_ptr<Residual> output;
};

struct Dense : nn::Module {  // a linear layer one level down, as the names have it
  Dense(std::int64_t in, std::int64_t out) {
    dense = register_module("dense", nn::Linear(in, out));
  }

  nn::Linear dense{nullptr};
};

struct BertLayer : nn::Module {
  explicit BertLayer(const BertSize& size) {
    attention = register_module("attention", std::make_shared<BertAttention>(size));
    intermediate =
        register_module("intermediate", std::make_shared<Dense>(size.width, 4 * size.width));
    output = register_module("output", std::make_shared<Residual>(4 * size.width, size.width));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = attention->forward(x);
    return output->forward(torch::gelu(intermediate->dense(y)), y);
  }

  std::shared_ptr<BertAttention> attention;
  std::shared_ptr<Dense> intermediate;
  std::shared_ptr<Residual> output;
};

struct Encoder : nn::Module {
  explicit Encoder(const BertSize& size) {
    for (std::int64_t i = 0; i < size.layers; ++i) layers->push_back(BertLayer(size));
    register_module("layer", layers);
  }

  nn::ModuleList layers;
};

struct Bert : nn::Module {
  explicit Bert(const BertSize& size) {
    embeddings = register_module("embeddings", std::make_shared<Embeddings>(size));
    encoder = register_module("encoder", std::make_shared<Encoder>(size));
    pooler = register_module("pooler", std::make_shared<Dense>(size.width, size.width));
  }

  // ids and types [batch, tokens] -> states [batch, tokens, width]
  torch::Tensor states(const torch::Tensor& ids, const torch::Tensor& types) {
    torch::Tensor x = embeddings->forward(ids, types);
    for (const auto& layer : *encoder->layers) x = layer->as<BertLayer>()->forward(x);
    return x;
  }

  torch::Tensor token_scores(const torch::Tensor& states) {
    return torch::matmul(states, embeddings->word_embeddings->weight.t());
  }

  torch::Tensor sentence_scores(const torch::Tensor& states) {
    const torch::Tensor pooled = torch::tanh(pooler->dense(states.select(1, 0)));
    return torch::matmul(pooled, embeddings->token_type_embeddings->weight.t());
  }

  std::shared_ptr<Embeddings> embeddings;
  std::shared_ptr<Encoder> encoder;
  std::shared_ptr<Dense> pooler;
};

// A batch: ids, token types, places of the hidden tokens (0: not hidden), the tokens themselves,
// and whether the second sentence follows the first.
torch::Tensor loss(Bert& net, const Batch& batch) {
  const torch::Tensor states = net.states(batch[0], batch[1]);
  const torch::Tensor scores = net.token_scores(states);
  const torch::Tensor next = net.sentence_scores(states);
  const ModuleScope scope("loss");
  const torch::Tensor token_losses =
      F::cross_entropy(scores.flatten(0, 1), batch[3].flatten(),
                       F::CrossEntropyFuncOptions().reduction(torch::kNone));
  const torch::Tensor hidden = batch[2].flatten().to(token_losses.scalar_type());
  // Every sample hides as many: a mean over the batch, whatever its size.
  return (token_losses * hidden).mean() * kHideEvery + F::cross_entropy(next, batch[4]);
}

Batch sentences(const BertSize& size, const ModelOptions& options, std::int64_t samples) {
  const torch::Tensor tokens =
      counting_sequences(options, samples, size.tokens, size.vocabulary - 2, 3) + 2;
  const torch::Tensor hidden =
      torch::arange(size.tokens).remainder(kHideEvery).eq(kHideEvery / 2).expand_as(tokens);
  const torch::Tensor types =
      torch::arange(size.tokens).ge(size.tokens / 2).to(torch::kInt64).expand_as(tokens);
  const torch::Tensor follows = tokens.select(1, 0).remainder(2);
  return {tokens.masked_fill(hidden, kMaskToken), types.contiguous(),
          hidden.to(torch::kInt64).contiguous(), tokens, follows};
}

ModelInfo bert(const std::string& name, const std::string& description, bool small,
               const BertSize& size) {
  const auto make = [=](const ModelOptions& options) {
    return finish_step(name, std::make_shared<Bert>(size), options, loss,
                       [](Bert& net, const Batch& batch) {
                         return net.token_scores(net.states(batch[0], batch[1]));
                       });
  };
  const auto data = [=](const ModelOptions& options, std::int64_t samples) {
    return sentences(size, options, samples);
  };
  return {name, description, small ? 8 : 1, "synthetic", small, make, data};
}

}  // namespace

std::vector<ModelInfo> bert_models() {
  return {bert("bert-small", "encoder of two transformer layers, with dropout", true,
               {64, 16, 32, 4, 2, 14}),
          bert("bert-3layer", "the base size, 3 layers, 128 tokens", false,
               {30522, 512, 768, 12, 3, 128}),
          bert("bert-base", "12 layers of width 768, 128 tokens", false,
               {30522, 512, 768, 12, 12, 128}),
          bert("bert-large", "24 layers of width 1024, 128 tokens", false,
               {30522, 512, 1024, 16, 24, 128})};
}

}  // namespace autodist::models
