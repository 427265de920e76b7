// Small models of every family for the tests of capture, and the comparison that each must pass.

#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autodist/capture/capture.h"
#include "autodist/capture/interpreter.h"
#include "autodist/capture/tensor_type.h"

namespace autodist::capture {

// While it lives, plain libtorch computes LSTMs by the ops that capture has of them (plain_ops.h).
class WithoutOneDnn {
 public:
  WithoutOneDnn() { set(TORCH_VERSION_MAJOR < 2 && before_); }
  ~WithoutOneDnn() { set(before_); }
  WithoutOneDnn(const WithoutOneDnn&) = delete;
  WithoutOneDnn& operator=(const WithoutOneDnn&) = delete;

 private:
  static void set(bool enabled) { at::globalContext().setUserEnabledMkldnn(enabled); }

  bool before_ = at::globalContext().userEnabledMkldnn();
};

struct ConvolutionalNetwork : torch::nn::Module {
  ConvolutionalNetwork() {
    conv1 =
        register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    conv2 =
        register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)));
    linear = register_module("linear", torch::nn::Linear(8, 10));
  }
  at::Tensor forward(at::Tensor x) {
    x = norm(conv1(x)).relu_();
    x = torch::relu(conv2(x)) + x;
    x = torch::max_pool2d(x, 2);
    x = torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
    return linear(torch::dropout(x, 0.3, true));
  }
  torch::nn::Conv2d conv1{nullptr};
  torch::nn::Conv2d conv2{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear linear{nullptr};
};

inline TrainingStep convolutional_network(std::int64_t batch = 4) {
  torch::manual_seed(1);
  return make_training_step("cnn", std::make_shared<ConvolutionalNetwork>(),
                            [](ConvolutionalNetwork& net, const Batch& batch) {
                              return torch::nn::functional::cross_entropy(net.forward(batch[0]),
                                                                          batch[1]);
                            },
                            {torch::randn({batch, 3, 8, 8}), torch::randint(0, 10, {batch})});
}

struct Transformer : torch::nn::Module {
  Transformer() {
    embedding = register_module("embedding", torch::nn::Embedding(50, 16));
    const auto layer =
        torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0);
    encoder = register_module("encoder",
                              torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                                  torch::nn::TransformerEncoderLayer(layer), 2)));
    head = register_module("head", torch::nn::Linear(16, 50));
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor x = embedding(ids).transpose(0, 1);
    return head(encoder(x)).transpose(0, 1);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::TransformerEncoder encoder{nullptr};
  torch::nn::Linear head{nullptr};
};

inline TrainingStep transformer(std::int64_t batch = 4) {
  torch::manual_seed(2);
  return make_training_step("transformer", std::make_shared<Transformer>(),
                            [](Transformer& net, const Batch& batch) {
                              const at::Tensor logits = net.forward(batch[0]);
                              return torch::nn::functional::cross_entropy(logits.reshape({-1, 50}),
                                                                          batch[1].reshape({-1}));
                            },
                            {torch::randint(0, 50, {batch, 6}), torch::randint(0, 50, {batch, 6})});
}

struct Lstm : torch::nn::Module {
  Lstm() {
    embedding = register_module("embedding", torch::nn::Embedding(30, 8));
    lstm = register_module(
        "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 12).num_layers(2).batch_first(true)));
    head = register_module("head", torch::nn::Linear(12, 5));
  }
  at::Tensor forward(const at::Tensor& ids) {
    return head(std::get<0>(lstm(embedding(ids))).select(1, -1));
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};

inline TrainingStep lstm(std::int64_t batch = 4) {
  torch::manual_seed(3);
  return make_training_step("lstm", std::make_shared<Lstm>(),
                            [](Lstm& net, const Batch& batch) {
                              return torch::nn::functional::cross_entropy(net.forward(batch[0]),
                                                                          batch[1]);
                            },
                            {torch::randint(0, 30, {batch, 7}), torch::randint(0, 5, {batch})});
}

struct SparseEmbedding : torch::nn::Module {
  SparseEmbedding() {
    users = register_module("users",
                            torch::nn::Embedding(torch::nn::EmbeddingOptions(40, 8).sparse(true)));
    items = register_module("items",
                            torch::nn::Embedding(torch::nn::EmbeddingOptions(60, 8).sparse(true)));
    head = register_module("head", torch::nn::Linear(16, 1));
  }
  at::Tensor forward(const at::Tensor& user, const at::Tensor& item) {
    return head(torch::cat({users(user), items(item)}, 1)).squeeze(1);
  }
  torch::nn::Embedding users{nullptr};
  torch::nn::Embedding items{nullptr};
  torch::nn::Linear head{nullptr};
};

inline TrainingStep sparse_embedding(std::int64_t batch = 4) {
  torch::manual_seed(4);
  return make_training_step("ncf", std::make_shared<SparseEmbedding>(),
                            [](SparseEmbedding& net, const Batch& batch) {
                              return torch::binary_cross_entropy_with_logits(
                                  net.forward(batch[0], batch[1]), batch[2]);
                            },
                            {torch::randint(0, 40, {batch}), torch::randint(0, 60, {batch}),
                             torch::randint(0, 2, {batch}).to(torch::kFloat)});
}

// Data of the example's types, `batch` rows of it, in an order and mixture that the example lacks.
inline Batch other_batch(const TrainingStep& step, std::int64_t batch) {
  torch::manual_seed(77);
  Batch result;
  const std::int64_t rows = step.example[0].size(0);
  for (const at::Tensor& input : step.example) {
    at::Tensor data = input.index_select(0, torch::randint(0, rows, {batch}));
    if (data.is_floating_point() && data.dim() > 1) data = data * 1.5 + 0.25;
    result.push_back(data);
  }
  return result;
}

// Loss, gradients (by variable) and buffers, by name.
using Contents = std::map<std::string, at::Tensor>;

inline Contents plain_step(const TrainingStep& step, const Batch& batch, std::uint64_t seed) {
  torch::manual_seed(seed);
  for (const NamedTensor& each : step.parameters) each.tensor.mutable_grad() = at::Tensor();
  Contents contents;
  const at::Tensor loss = step.loss(batch);
  loss.backward();
  contents["loss"] = loss.detach();
  for (const NamedTensor& each : step.parameters) {
    if (each.tensor.grad().defined()) contents["grad " + each.name] = each.tensor.grad();
    each.tensor.mutable_grad() = at::Tensor();
  }
  for (const NamedTensor& each : step.buffers) contents[each.name] = each.tensor.clone();
  return contents;
}

inline Contents replayed_step(const CapturedStep& captured, const Batch& batch,
                              std::uint64_t seed) {
  torch::manual_seed(seed);
  const ir::Graph& graph = captured.graph;
  Interpreter replay(graph, captured.tensors, {}, batch[0].size(0));
  replay.run(batch);
  Contents contents;
  contents["loss"] = replay.tensor(graph.outputs[0]);
  for (const ir::Variable& variable : graph.variables) {
    if (!variable.gradient) continue;
    contents["grad " + variable.name] = replay.tensor(*variable.gradient);
  }
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    contents[graph.buffers[i].name] = captured.tensors.buffers[i].clone();
  }
  return contents;
}

inline std::vector<at::Tensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const NamedTensor& each : tensors) result.push_back(each.tensor.detach().clone());
  return result;
}

inline void put_back(const std::vector<NamedTensor>& tensors, const std::vector<at::Tensor>& kept) {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    at::Tensor tensor = tensors[i].tensor;
    tensor.copy_(kept[i]);
  }
}

inline void expect_equal_bits(const Contents& plain, const Contents& replayed) {
  EXPECT_EQ(plain.size(), replayed.size());
  for (const auto& [name, tensor] : plain) {
    ASSERT_EQ(replayed.count(name), 1u) << name;
    EXPECT_EQ(digest_of(tensor), digest_of(replayed.at(name))) << name;
  }
}

// A replay and the plain step, bit for bit, at a batch size and on data that capture did not see.
inline void expect_replays(const TrainingStep& step, const CapturedStep& captured,
                           std::int64_t batch) {
  const Batch data = other_batch(step, batch);
  const std::vector<at::Tensor> buffers = copies(step.buffers);
  const Contents plain = plain_step(step, data, 9);
  put_back(step.buffers, buffers);
  expect_equal_bits(plain, replayed_step(captured, data, 9));
  put_back(step.buffers, buffers);
}

// Captures `step`, expects a symbolic batch and an equal replay.
inline void expect_replays_at_any_batch(const TrainingStep& step, std::int64_t batch) {
  const CapturedStep captured = capture(step);
  EXPECT_EQ(captured.graph.batch_fixed_reason, "");
  expect_replays(step, captured, batch);
}

}  // namespace autodist::capture
