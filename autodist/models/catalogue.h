// The built-in models: examples to train and the benchmark set to plan. Names and shapes of
// parameters are those of the published implementations, so that their checkpoints load elsewhere.
//
// Opt-in: includes torch through capture/training_step.h.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::models {

struct ModelOptions {
  std::int64_t batch = 0;                     // samples of the example; 0: the model's default
  torch::ScalarType dtype = torch::kFloat32;  // of parameters and real-valued inputs
  std::uint64_t seed = 0;                     // of initialisation and of the example
};

struct ModelInfo {
  std::string name;         // "digits", "gpt-small"
  std::string description;  // one line
  std::int64_t default_batch = 32;
  std::string data;   // "digits", or "synthetic"
  bool small = true;  // trains on two cores; the others have the published sizes
  std::function<TrainingStep(const ModelOptions& options)> make;
  // `samples` samples of synthetic data, the same for the same seed, learnable.
  std::function<Batch(const ModelOptions& options, std::int64_t samples)> synthetic;
};

// In the order in which help lists them.
const std::vector<ModelInfo>& catalogue();

// Throws Error(kUsage) with the nearest name.
const ModelInfo& find_model(const std::string& name);

// The model with its example batch filled in.
TrainingStep make_model(const std::string& name, ModelOptions options);

}  // namespace autodist::models
