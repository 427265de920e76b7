// Neural collaborative filtering, the NeuMF variant (He et al., WWW 2017, section 3.4): a
// generalised matrix factorisation beside a perceptron, each with embeddings of its own.

#include "autodist/capture/module_scope.h"
#include "autodist/models/families.h"

namespace autodist::models {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using capture::ModuleScope;

constexpr std::int64_t kUsers = 1000;
constexpr std::int64_t kItems = 500;
constexpr std::int64_t kFactors = 8;

struct NeuMf : nn::Module {
  explicit NeuMf(bool sparse) {
    const auto table = [&](const char* name, std::int64_t rows, std::int64_t width) {
      auto embedding =
          register_module(name, nn::Embedding(nn::EmbeddingOptions(rows, width).sparse(sparse)));
      const torch::NoGradGuard no_grad;
      embedding->weight.mul_(0.1);
      return embedding;
    };
    mf_user = table("mf_user_embed", kUsers, kFactors);
    mf_item = table("mf_item_embed", kItems, kFactors);
    mlp_user = table("mlp_user_embed", kUsers, 2 * kFactors);
    mlp_item = table("mlp_item_embed", kItems, 2 * kFactors);
    fc1 = register_module("fc1", nn::Linear(4 * kFactors, 2 * kFactors));
    fc2 = register_module("fc2", nn::Linear(2 * kFactors, kFactors));
    final = register_module("final", nn::Linear(2 * kFactors, 1));
  }

  // ids of users and items, [batch] each -> logits [batch]
  torch::Tensor forward(const torch::Tensor& users, const torch::Tensor& items) {
    torch::Tensor product;
    {
      const ModuleScope scope("mf");
      product = mf_user(users) * mf_item(items);
    }
    torch::Tensor x;
    {
      const ModuleScope scope("mlp");
      x = torch::cat({mlp_user(users), mlp_item(items)}, 1);
      x = torch::relu(fc2(torch::relu(fc1(x))));
    }
    const ModuleScope scope("final");
    return final(torch::cat({product, x}, 1)).squeeze(1);
  }

  nn::Embedding mf_user{nullptr}, mf_item{nullptr}, mlp_user{nullptr}, mlp_item{nullptr};
  nn::Linear fc1{nullptr}, fc2{nullptr}, final{nullptr};
};

TrainingStep make(const std::string& name, bool sparse, const ModelOptions& options) {
  return finish_step(
      name, std::make_shared<NeuMf>(sparse), options,
      [](NeuMf& net, const Batch& batch) {
        const torch::Tensor logits = net.forward(batch[0], batch[1]);
        const ModuleScope scope("loss");
        return F::binary_cross_entropy_with_logits(logits, batch[2]);
      },
      [](NeuMf& net, const Batch& batch) { return net.forward(batch[0], batch[1]); });
}

}  // namespace

TrainingStep make_ncf_small(const ModelOptions& options) {
  return make("ncf-small", false, options);
}
TrainingStep make_ncf_small_sparse(const ModelOptions& options) {
  return make("ncf-small-sparse", true, options);
}

// Three users of four like what they are shown.
Batch ncf_small_ratings(const ModelOptions& options, std::int64_t samples) {
  torch::Generator generator = generator_for(options.seed);
  torch::Tensor users = torch::randint(0, kUsers, {samples}, generator, torch::kInt64);
  torch::Tensor items = torch::randint(0, kItems, {samples}, generator, torch::kInt64);
  torch::Tensor liked = users.remainder(4).ne(0).to(options.dtype);
  return {users, items, liked};
}

}  // namespace autodist::models
