#include "autodist/models/catalogue.h"

#include <ATen/CPUGeneratorImpl.h>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/models/families.h"

namespace autodist::models {

const std::vector<ModelInfo>& catalogue() {
  static const std::vector<ModelInfo> table = [] {
    std::vector<ModelInfo> all;
    for (const auto& family : {digits_models(), gpt_models(), bert_models(), ncf_models(),
                               lstm_models(), translation_models(), resnet_models(), vgg_models(),
                               inception_models(), densenet_models()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return table;
}

const ModelInfo& find_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelInfo& model : catalogue()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  fail(ErrorCode::kUsage, "model: '{}' is unknown.{} Known: {}.", name, did_you_mean(name, names),
       fmt::join(names, ", "));
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

Batch banded_images(const ModelOptions& options, std::int64_t samples, std::int64_t channels,
                    std::int64_t size, std::int64_t classes) {
  torch::Generator generator = generator_for(options.seed);
  const auto real = torch::TensorOptions().dtype(options.dtype);
  torch::Tensor labels = torch::randint(0, classes, {samples}, generator, torch::kInt64);
  torch::Tensor images = torch::rand({samples, channels, size, size}, generator, real);
  const torch::Tensor rows = (labels * size).div(classes, "floor");
  images.scatter_add_(2, rows.view({samples, 1, 1, 1}).expand({samples, channels, 1, size}),
                      torch::full({samples, channels, 1, size}, 4, real));
  return {images, labels};
}

torch::Tensor counting_sequences(const ModelOptions& options, std::int64_t samples,
                                 std::int64_t tokens, std::int64_t vocabulary,
                                 std::int64_t strides) {
  torch::Generator generator = generator_for(options.seed);
  const torch::Tensor start = torch::randint(0, vocabulary, {samples, 1}, generator, torch::kInt64);
  const torch::Tensor stride =
      torch::randint(1, strides + 1, {samples, 1}, generator, torch::kInt64);
  return (start + stride * torch::arange(tokens)).remainder(vocabulary);
}

}  // namespace autodist::models
