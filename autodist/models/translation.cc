// Translation with attention, as Sockeye's recurrent model has it (Hieber et al., 2017; Luong et
// al., EMNLP 2015): a bidirectional encoder, a decoder that is fed its own attention, padded
// batches with masks.

#include <limits>

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

struct TranslationSize {
  std::int64_t source_vocabulary, target_vocabulary;
  std::int64_t embedding, hidden;
  std::int64_t source_tokens, target_tokens;
};

constexpr std::int64_t kPadding = 0;

struct Translator : nn::Module {
  explicit Translator(const TranslationSize& size) {
    const auto words = [&](const char* name, std::int64_t vocabulary) {
      return register_module(name, nn::Embedding(vocabulary, size.embedding));
    };
    source_embedding = words("source_embedding", size.source_vocabulary);
    target_embedding = words("target_embedding", size.target_vocabulary);
    encoder = register_module("encoder", nn::LSTM(nn::LSTMOptions(size.embedding, size.hidden / 2)
                                                      .bidirectional(true)
                                                      .batch_first(true)));
    decoder = register_module("decoder", nn::LSTMCell(size.embedding + size.hidden, size.hidden));
    key =
        register_module("key", nn::Linear(nn::LinearOptions(size.hidden, size.hidden).bias(false)));
    attended = register_module("attended", nn::Linear(2 * size.hidden, size.hidden));
    output = register_module("output", nn::Linear(size.hidden, size.target_vocabulary));
  }

  // source [batch, n], target [batch, m] (what is known before each word) -> logits
  // [batch, m, vocabulary]. Padding comes last; attention does not see it.
  torch::Tensor forward(const torch::Tensor& source, const torch::Tensor& target) {
    const torch::Tensor memory = std::get<0>(encoder(source_embedding(source)));
    const torch::Tensor keys = key(memory);
    const torch::Tensor padding = source.eq(kPadding);
    const torch::Tensor words = target_embedding(target);
    torch::Tensor h = torch::zeros_like(memory.select(1, 0));
    torch::Tensor c = h;
    torch::Tensor context = h;
    std::vector<torch::Tensor> states;
    for (std::int64_t i = 0; i < target.size(1); ++i) {
      std::tie(h, c) = decoder(torch::cat({words.select(1, i), context}, 1), std::tuple(h, c));
      context = attend(h, memory, keys, padding);
      states.push_back(context);
    }
    return output(torch::stack(states, 1));
  }

  // h [batch, hidden] -> the next attentional state, of the same shape.
  torch::Tensor attend(const torch::Tensor& h, const torch::Tensor& memory,
                       const torch::Tensor& keys, const torch::Tensor& padding) {
    const torch::Tensor scores =
        torch::bmm(keys, h.unsqueeze(2))
            .squeeze(2)
            .masked_fill(padding, -std::numeric_limits<double>::infinity());
    const torch::Tensor read =
        torch::bmm(torch::softmax(scores, 1).unsqueeze(1), memory).squeeze(1);
    return torch::tanh(attended(torch::cat({h, read}, 1)));
  }

  nn::Embedding source_embedding{nullptr}, target_embedding{nullptr};
  nn::LSTM encoder{nullptr};
  nn::LSTMCell decoder{nullptr};
  nn::Linear key{nullptr}, attended{nullptr}, output{nullptr};
};

// A batch: source, target so far, target. A sample's loss is the sum over its words divided by the
// longest possible number, so that padding does not change how samples count.
torch::Tensor loss_of(Translator& net, const Batch& batch) {
  const torch::Tensor logits = net.forward(batch[0], batch[1]);
  const ModuleScope scope("loss");
  const torch::Tensor losses =
      F::cross_entropy(logits.flatten(0, 1), batch[2].flatten(),
                       F::CrossEntropyFuncOptions().reduction(torch::kNone));
  return (losses * batch[2].flatten().ne(kPadding).to(losses.scalar_type())).mean();
}

// The translation of a sentence is the same words one further, padded from a random length on.
Batch sentence_pairs(const TranslationSize& size, const ModelOptions& options,
                     std::int64_t samples) {
  const auto pad = [](const torch::Tensor& words, const torch::Tensor& lengths) {
    const torch::Tensor beyond = torch::arange(words.size(1)).unsqueeze(0).ge(lengths);
    return words.masked_fill(beyond, kPadding).contiguous();
  };
  const std::int64_t vocabulary = std::min(size.source_vocabulary, size.target_vocabulary) - 2;
  const std::int64_t tokens = std::max(size.source_tokens, size.target_tokens);
  const torch::Tensor words = counting_sequences(options, samples, tokens + 1, vocabulary, 1) + 1;
  torch::Generator generator = generator_for(options.seed + 1);
  const torch::Tensor lengths =
      torch::randint(tokens / 2, tokens + 1, {samples, 1}, generator, torch::kInt64);
  const torch::Tensor so_far = words.slice(1, 0, size.target_tokens);
  return {pad(words.slice(1, 0, size.source_tokens), lengths), pad(so_far, lengths),
          pad(words.slice(1, 1, size.target_tokens + 1), lengths)};
}

ModelInfo translation(const std::string& name, const std::string& description, bool small,
                      const TranslationSize& size) {
  const auto make = [=](const ModelOptions& options) {
    return finish_step(
        name, std::make_shared<Translator>(size), options, loss_of,
        [](Translator& net, const Batch& batch) { return net.forward(batch[0], batch[1]); });
  };
  const auto data = [=](const ModelOptions& options, std::int64_t samples) {
    return sentence_pairs(size, options, samples);
  };
  return {name, description, small ? 8 : 1, "synthetic", small, make, data};
}

}  // namespace

std::vector<ModelInfo> translation_models() {
  return {
      translation("nmt-small", "recurrent translation with attention, padded batches", true,
                  {50, 50, 16, 24, 7, 6}),
      translation("nmt", "the same with 32,000 words, LSTMs of 1,024, 30 tokens", false,
                  {32000, 32000, 512, 1024, 30, 30}),
      // Vocabularies of the English to Vietnamese task of IWSLT 2015 (Luong and Manning).
      translation("nmt-iwslt", "the same with IWSLT 2015's vocabularies, LSTMs of 512, 25 tokens",
                  false, {17191, 7709, 512, 512, 25, 25})};
}

}  // namespace autodist::models
