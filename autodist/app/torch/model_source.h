// MODEL on the command line: a built-in example or a TorchScript file, with its data.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/models/data.h"

namespace CLI {
class App;
}

namespace autodist::app {

struct ModelRequest {
  std::string name;              // of the catalogue, or a file
  std::int64_t batch = 0;        // samples of the example, per replica; 0: the model's default
  std::int64_t whole_batch = 0;  // samples of a step: at least so many, where they are made up
  std::string dtype = "float32";
  std::uint64_t seed = 0;
  // Of a TorchScript file; inputs (input_spec.h) in the order of the batch, the target last.
  std::string loss = "cross_entropy";
  std::vector<std::string> inputs;
};

// Whether MODEL is no name of the catalogue, and there is such a file.
bool is_model_file(const std::string& name);

// Adds MODEL, --dtype, --seed, --loss, --input.
void declare_model_options(CLI::App& verb, ModelRequest& request);
// Throws Error(kUsage) where those of a TorchScript file were given for a built-in model.
// `declared` is the verb, parsed.
void check_model_options(const CLI::App& declared, const ModelRequest& request);

struct ModelSource {
  TrainingStep step;
  std::unique_ptr<models::Dataset> training;
  std::unique_ptr<models::Dataset> held_out;  // nullptr where the data have none
  std::string data_description;               // "synthetic", "digits (1437 training, 360 held out)"
};

// `data`: "" (the model's own, else synthetic), "synthetic" or a directory of .npy files. Throws
// Error(kUsage).
ModelSource open_model(const ModelRequest& request, const std::string& data);

}  // namespace autodist::app
