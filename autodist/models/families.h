// The families behind the catalogue, one source file each. For models' own .cc files.
//
// Opt-in: includes torch through capture/training_step.h.

#pragma once

#include "autodist/models/catalogue.h"

namespace autodist::models {

// digits.cc: a convolutional network on 8×8 images, 10 classes; without and with batch norm and
// dropout.
TrainingStep make_digits(const ModelOptions& options);
TrainingStep make_digits_norm(const ModelOptions& options);
Batch digits_like(const ModelOptions& options, std::int64_t samples);

// transformer.cc: decoders with causal attention; the next token is predicted.
TrainingStep make_gpt_small(const ModelOptions& options);
Batch gpt_small_tokens(const ModelOptions& options, std::int64_t samples);

// ncf.cc: neural collaborative filtering (He et al., WWW 2017): users and items as embeddings.
TrainingStep make_ncf_small(const ModelOptions& options);
TrainingStep make_ncf_small_sparse(
    const ModelOptions& options);  // sparse gradients of the embeddings
Batch ncf_small_ratings(const ModelOptions& options, std::int64_t samples);

// lstm.cc: a recurrent language model.
TrainingStep make_lstm_small(const ModelOptions& options);
Batch lstm_small_tokens(const ModelOptions& options, std::int64_t samples);

// Parameters and real-valued buffers; integers (positions) stay. Module::to would convert them,
// too.
void set_real_dtype(torch::nn::Module& module, torch::ScalarType dtype);

// What every family does with its module: the dtype, and the step's `evaluate`, which runs
// `outputs` (module&, batch) -> tensor in evaluation mode without gradients.
template <typename Module, typename Loss, typename Outputs>
TrainingStep finish_step(const std::string& name, std::shared_ptr<Module> module,
                         const ModelOptions& options, Loss loss, Outputs outputs) {
  set_real_dtype(*module, options.dtype);
  TrainingStep step = make_training_step(name, module, loss, {});
  step.evaluate = [module, outputs](const Batch& batch) -> std::vector<torch::Tensor> {
    const torch::NoGradGuard no_grad;
    const bool training = module->is_training();
    module->eval();
    torch::Tensor result = outputs(*module, batch);
    module->train(training);
    return {result};
  };
  return step;
}

// A generator of its own, so that examples do not depend on who drew numbers before.
torch::Generator generator_for(std::uint64_t seed);

}  // namespace autodist::models
