// Neural collaborative filtering, the NeuMF variant (He et al., WWW 2017, section 3.4): a
// generalised matrix factorisation beside a perceptron, each with embeddings of its own.

#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

struct NcfSize {
  std::int64_t users, items;
  std::int64_t factors;           // of the factorisation
  std::vector<std::int64_t> mlp;  // widths of the perceptron; the first is two embeddings'
  bool sparse;                    // gradients of the embeddings
};

struct NeuMf : nn::Module {
  explicit NeuMf(const NcfSize& size) {
    const auto table = [&](const char* name, std::int64_t rows, std::int64_t width) {
      auto embedding = register_module(
          name, nn::Embedding(nn::EmbeddingOptions(rows, width).sparse(size.sparse)));
      const torch::NoGradGuard no_grad;
      embedding->weight.mul_(0.1);
      return embedding;
    };
    mf_user = table("mf_user_embed", size.users, size.factors);
    mf_item = table("mf_item_embed", size.items, size.factors);
    mlp_user = table("mlp_user_embed", size.users, size.mlp.front() / 2);
    mlp_item = table("mlp_item_embed", size.items, size.mlp.front() / 2);
    for (std::size_t i = 1; i < size.mlp.size(); ++i) {
      mlp->push_back(nn::Linear(size.mlp[i - 1], size.mlp[i]));
    }
    register_module("mlp", mlp);
    final = register_module("final", nn::Linear(size.factors + size.mlp.back(), 1));
  }

  // ids of users and items, [batch] each -> logits [batch]
  torch::Tensor forward(const torch::Tensor& users, const torch::Tensor& items) {
    torch::Tensor product;
    {
      const ModuleScope scope("mf");
      product = mf_user(users) * mf_item(items);
    }
    torch::Tensor x = torch::cat({mlp_user(users), mlp_item(items)}, 1);
    for (const auto& layer : *mlp) x = torch::relu(layer->as<nn::Linear>()->forward(x));
    const ModuleScope scope("final");
    return final(torch::cat({product, x}, 1)).squeeze(1);
  }

  nn::Embedding mf_user{nullptr}, mf_item{nullptr}, mlp_user{nullptr}, mlp_item{nullptr};
  nn::ModuleList mlp;
  nn::Linear final{nullptr};
};

// Three users of four like what they are shown.
Batch ratings(const NcfSize& size, const ModelOptions& options, std::int64_t samples) {
  torch::Generator generator = generator_for(options.seed);
  torch::Tensor users = torch::randint(0, size.users, {samples}, generator, torch::kInt64);
  torch::Tensor items = torch::randint(0, size.items, {samples}, generator, torch::kInt64);
  torch::Tensor liked = users.remainder(4).ne(0).to(options.dtype);
  return {users, items, liked};
}

ModelInfo ncf(const std::string& name, const std::string& description, bool small,
              const NcfSize& size) {
  const auto make = [=](const ModelOptions& options) {
    return finish_step(
        name, std::make_shared<NeuMf>(size), options,
        [](NeuMf& net, const Batch& batch) {
          const torch::Tensor logits = net.forward(batch[0], batch[1]);
          const ModuleScope scope("loss");
          return F::binary_cross_entropy_with_logits(logits, batch[2]);
        },
        [](NeuMf& net, const Batch& batch) { return net.forward(batch[0], batch[1]); });
  };
  const auto data = [=](const ModelOptions& options, std::int64_t samples) {
    return ratings(size, options, samples);
  };
  return {name, description, 64, "synthetic", small, make, data};
}

}  // namespace

std::vector<ModelInfo> ncf_models() {
  return {ncf("ncf-small", "neural collaborative filtering, dense gradients", true,
              {1000, 500, 8, {32, 16, 8}, false}),
          ncf("ncf-small-sparse", "the same with sparse gradients of the embeddings", true,
              {1000, 500, 8, {32, 16, 8}, true}),
          ncf("ncf", "neural collaborative filtering of MovieLens-20M, sparse gradients", false,
              {138493, 26744, 64, {256, 256, 128, 64}, true}),
          ncf("ncf-dense", "the same with dense gradients, as it is mostly trained on GPUs", false,
              {138493, 26744, 64, {256, 256, 128, 64}, false})};
}

}  // namespace autodist::models
