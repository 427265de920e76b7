// The families behind the catalogue, one source file each. For models' own .cc files.
//
// Opt-in: includes torch.

#pragma once

#include <torch/torch.h>

#include "autodist/capture/module_scope.h"
#include "autodist/models/catalogue.h"

namespace autodist::models {

std::vector<ModelInfo> digits_models();       // convolutions on 8×8 images
std::vector<ModelInfo> resnet_models();       // He et al., CVPR 2016
std::vector<ModelInfo> vgg_models();          // Simonyan and Zisserman, ICLR 2015
std::vector<ModelInfo> inception_models();    // Szegedy et al., CVPR 2016
std::vector<ModelInfo> densenet_models();     // Huang et al., CVPR 2017
std::vector<ModelInfo> bert_models();         // Devlin et al., NAACL 2019
std::vector<ModelInfo> gpt_models();          // Radford et al., 2019
std::vector<ModelInfo> ncf_models();          // He et al., WWW 2017
std::vector<ModelInfo> lstm_models();         // recurrent language models
std::vector<ModelInfo> translation_models();  // Hieber et al., Sockeye, 2017

// Learnable samples that several families share.
// Images [samples, channels, size, size] of noise in which the class shows as a bright band, and
// labels below `classes`.
Batch banded_images(const ModelOptions& options, std::int64_t samples, std::int64_t channels,
                    std::int64_t size, std::int64_t classes);
// Sequences [samples, tokens] that count upwards from a random token with a stride from 1 to
// `strides`, modulo `vocabulary`.
torch::Tensor counting_sequences(const ModelOptions& options, std::int64_t samples,
                                 std::int64_t tokens, std::int64_t vocabulary,
                                 std::int64_t strides);

// Parameters and real-valued buffers; integers (positions) stay. Module::to would convert them,
// too.
void set_real_dtype(torch::nn::Module& module, torch::ScalarType dtype);

// What every family does with its module: the dtype, and the step's `evaluate`, which runs
// `outputs` (module&, batch) -> tensor without gradients.
template <typename Module, typename Loss, typename Outputs>
TrainingStep finish_step(const std::string& name, std::shared_ptr<Module> module,
                         const ModelOptions& options, Loss loss, Outputs outputs) {
  set_real_dtype(*module, options.dtype);
  TrainingStep step = make_training_step(name, module, loss, {});
  step.evaluate = [module, outputs](const Batch& batch) -> std::vector<torch::Tensor> {
    const torch::NoGradGuard no_grad;
    return {outputs(*module, batch)};
  };
  return step;
}

// A step that takes images and labels: the cross entropy of the module's logits.
template <typename Module>
TrainingStep make_classifier(const std::string& name, std::shared_ptr<Module> module,
                             const ModelOptions& options) {
  return finish_step(
      name, std::move(module), options,
      [](Module& net, const Batch& batch) {
        const torch::Tensor logits = net.forward(batch[0]);
        const capture::ModuleScope scope("loss");
        return torch::nn::functional::cross_entropy(logits, batch[1]);
      },
      [](Module& net, const Batch& batch) { return net.forward(batch[0]); });
}

// A model of images, made from a size that says `image` (side in pixels) and `classes`.
template <typename Module, typename Size>
ModelInfo image_classifier(const std::string& name, const std::string& description, bool small,
                           const Size& size) {
  const auto make = [=](const ModelOptions& options) {
    return make_classifier(name, std::make_shared<Module>(size), options);
  };
  const auto images = [=](const ModelOptions& options, std::int64_t samples) {
    return banded_images(options, samples, 3, size.image, size.classes);
  };
  return {name, description, small ? 8 : 1, "synthetic", small, make, images};
}

// A generator of its own, so that examples do not depend on who drew numbers before.
torch::Generator generator_for(std::uint64_t seed);

}  // namespace autodist::models
