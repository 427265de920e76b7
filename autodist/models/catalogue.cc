#include "autodist/models/catalogue.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/models/families.h"

namespace autodist::models {

const std::vector<ModelInfo>& catalogue() {
  static const std::vector<ModelInfo> table{
      {"digits", "convolutional network on 8x8 images of digits", 32, "digits", true, make_digits,
       digits_like},
      {"digits-norm", "the same with batch norm and dropout", 32, "digits", true, make_digits_norm,
       digits_like},
      {"gpt-small", "decoder of two transformer layers, tied output", 8, "synthetic", true,
       make_gpt_small, gpt_small_tokens},
      {"ncf-small", "neural collaborative filtering, dense gradients", 64, "synthetic", true,
       make_ncf_small, ncf_small_ratings},
      {"ncf-small-sparse", "the same with sparse gradients of the embeddings", 64, "synthetic",
       true, make_ncf_small_sparse, ncf_small_ratings},
      {"lstm-small", "recurrent language model", 16, "synthetic", true, make_lstm_small,
       lstm_small_tokens},
  };
  return table;
}

const ModelInfo& find_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelInfo& model : catalogue()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  const std::string meant = nearest(name, names);
  fail(ErrorCode::kUsage, "model: '{}' is unknown{}. Known: {}.", name,
       meant.empty() ? "" : fmt::format(", did you mean '{}'?", meant), fmt::join(names, ", "));
}

TrainingStep make_model(const std::string& name, ModelOptions options) {
  const ModelInfo& model = find_model(name);
  if (options.batch == 0) options.batch = model.default_batch;
  torch::manual_seed(options.seed);
  TrainingStep step = model.make(options);
  step.name = name;
  step.example = model.synthetic(options, options.batch);
  return step;
}

void set_real_dtype(torch::nn::Module& module, torch::ScalarType dtype) {
  const auto convert = [&](torch::Tensor& tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
  };
  for (torch::Tensor& parameter : module.parameters()) convert(parameter);
  for (torch::Tensor& buffer : module.buffers()) convert(buffer);
}

torch::Generator generator_for(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

}  // namespace autodist::models
