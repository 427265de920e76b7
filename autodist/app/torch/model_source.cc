#include "autodist/app/torch/model_source.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "autodist/app/device_failure.h"
#include "autodist/app/torch/input_spec.h"
#include "autodist/base/error.h"
#include "autodist/capture/torchscript.h"
#include "autodist/models/catalogue.h"

namespace autodist::app {
namespace {

// Enough synthetic samples that an epoch is many steps, and no more memory than this.
constexpr std::int64_t kSyntheticSamples = 2048;
constexpr std::int64_t kSyntheticBytes = 64 << 20;

torch::ScalarType dtype_named(const std::string& name) {
  if (name == "float32") return torch::kFloat32;
  if (name == "float64") return torch::kFloat64;
  fail(ErrorCode::kUsage, "--dtype '{}': float32 or float64 expected", name);
}

std::string model_help() {
  std::string text = "a TorchScript file, or one of";
  for (const models::ModelInfo& model : models::catalogue()) text += " " + model.name;
  return text;
}

std::unique_ptr<models::Dataset> owned(models::Dataset data) {
  return std::make_unique<models::Dataset>(std::move(data));
}

// At least four batches of a replica, for few large samples, and one whole batch.
models::Dataset synthetic_samples(const models::ModelInfo& model,
                                  const models::ModelOptions& options, const Batch& example,
                                  std::int64_t whole_batch) {
  std::int64_t bytes = 0;
  for (const torch::Tensor& each : example) bytes += static_cast<std::int64_t>(each.nbytes());
  const std::int64_t batch = example.front().size(0);
  const std::int64_t fitting = kSyntheticBytes / std::max<std::int64_t>(1, bytes / batch);
  const std::int64_t samples =
      std::max({4 * batch, whole_batch, std::min(fitting, kSyntheticSamples)});
  return models::Dataset(model.synthetic(options, samples));
}

// A name of the catalogue stands for its model, whatever lies in this folder: ./NAME is a file.
bool is_built_in(const std::string& name) {
  const std::vector<models::ModelInfo>& all = models::catalogue();
  return std::any_of(all.begin(), all.end(),
                     [&](const models::ModelInfo& model) { return model.name == name; });
}

}  // namespace

bool is_model_file(const std::string& name) {
  std::error_code unknown;
  return !is_built_in(name) && std::filesystem::is_regular_file(name, unknown);
}

void declare_model_options(CLI::App& verb, ModelRequest& request) {
  verb.add_option("model", request.name, model_help())->required();
  verb.add_option("--dtype", request.dtype, "of parameters and samples")
      ->check(CLI::IsMember({"float32", "float64"}));
  verb.add_option("--seed", request.seed, "of parameters, samples and random numbers (default 0)");
  verb.add_option(
          "--loss", request.loss,
          "of a TorchScript file: cross_entropy or mse of its output and the last tensor of "
          "the batch, or none (it returns the loss)")
      ->check(CLI::IsMember({"cross_entropy", "mse", "none"}));
  verb.add_option(
      "--input", request.inputs,
      "of a TorchScript file, once per tensor of the batch: float32:3,224,224 (the sizes "
      "of a sample), int64::10 (one whole number below 10)");
}

void check_model_options(const CLI::App& declared, const ModelRequest& request) {
  if (!is_built_in(request.name)) return;
  for (const char* option : {"--loss", "--input"}) {
    if (declared.count(option) == 0) continue;
    fail(ErrorCode::kUsage,
         "{}: {} is of a TorchScript file, and '{}' is a built-in model, which has its own. Leave "
         "it out.",
         declared.get_name(), option, request.name);
  }
}

namespace {

// Before it is asked what such a file takes.
void expect_archive(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(2, '\0');
  file.read(begin.data(), 2);
  if (begin == "PK") return;
  fail(ErrorCode::kUsage,
       "torchscript: '{}' is no TorchScript file. One of torch.jit.save or `autodist export` "
       "expected.",
       path);
}

[[noreturn]] void refuse_batch(const std::string& path, const Batch& batch,
                               const std::string& said) {
  std::vector<std::string> shapes;
  for (const torch::Tensor& each : batch) {
    shapes.push_back(fmt::format("[{}]", fmt::join(each.sizes(), ",")));
  }
  // The last line is libtorch's own; what is above it leads there through the file's code.
  const std::string text = said.substr(0, said.find_last_not_of(" \n.") + 1);
  fail(ErrorCode::kUsage,
       "{}: a batch of {} is refused: {}. Give --input or --data, and --loss, as the model takes "
       "them.",
       path, fmt::join(shapes, ", "), text.substr(text.rfind('\n') + 1));
}

// A batch that is not what the file takes is its user's to mend.
std::function<torch::Tensor(const Batch&)> explained(
    std::function<torch::Tensor(const Batch&)> loss, const std::string& path) {
  return [loss = std::move(loss), path](const Batch& batch) {
    try {
      return loss(batch);
    } catch (const Error&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      const std::string said = error.what_without_backtrace();
      if (refused_by(said) == Refused::kDevice) throw;
      refuse_batch(path, batch, said.substr(0, said.find('\n')));
    } catch (const std::runtime_error& error) {
      const std::string said = error.what();
      if (said.find("TorchScript interpreter") == std::string::npos) throw;
      fail_of_device(path, said);
      refuse_batch(path, batch, said);
    }
  };
}

// Samples from files, or random ones of the shapes that --input gives; the example is the first
// few.
ModelSource open_script(const ModelRequest& request, const std::string& data) {
  constexpr std::int64_t kExampleSamples = 8;
  if (request.dtype != "float32") {
    fail(ErrorCode::kUsage, "--dtype {}: a TorchScript file has its own. Leave it out.",
         request.dtype);
  }
  expect_archive(request.name);
  const std::int64_t batch = request.batch > 0 ? request.batch : kExampleSamples;
  ModelSource source;
  if (!data.empty() && data != "synthetic") {
    source.training = owned(models::read_directory(data, torch::kFloat32));
    source.data_description = fmt::format("{} ({} samples)", data, source.training->size());
  } else {
    if (request.inputs.empty()) {
      fail(ErrorCode::kUsage,
           "{}: a TorchScript file does not say what it takes. Give --input once per tensor of the "
           "batch, for example --input float32:3,224,224 --input int64::10, or --data.",
           request.name);
    }
    std::vector<InputSpec> inputs;
    for (const std::string& each : request.inputs) inputs.push_back(parse_input_spec(each));
    const std::int64_t samples = std::max(16 * batch, request.whole_batch);
    source.training = owned(models::Dataset(random_samples(inputs, samples, request.seed)));
    source.data_description = "synthetic";
  }
  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::min(batch, source.training->size())));
  std::iota(first.begin(), first.end(), std::int64_t{0});
  source.step = capture::training_step_from_torchscript(
      request.name, capture::script_loss_from_name(request.loss), source.training->batch(first));
  source.step.loss = explained(std::move(source.step.loss), request.name);
  return source;
}

}  // namespace

ModelSource open_model(const ModelRequest& request, const std::string& data) {
  const std::filesystem::path path(request.name);
  if (path.extension() == ".adg") {
    fail(ErrorCode::kUsage,
         "model: '{}' is a captured graph; a built-in model or a TorchScript file expected. To "
         "plan it: autodist plan {}",
         request.name, request.name);
  }
  if (is_model_file(request.name)) return open_script(request, data);
  if (path.extension() == ".pt" || path.has_parent_path()) {
    fail(ErrorCode::kUsage,
         "model: there is no file '{}'. `autodist train --help` lists the built-in models.",
         request.name);
  }
  const models::ModelInfo& model = models::find_model(request.name);
  models::ModelOptions options;
  options.batch = request.batch;
  options.dtype = dtype_named(request.dtype);
  options.seed = request.seed;
  ModelSource source;
  source.step = models::make_model(request.name, options);
  const std::string wanted = data.empty() ? model.data : data;
  if (data.empty() && wanted == "digits") {
    models::Digits digits = models::digits(options.dtype);
    source.data_description = fmt::format("digits ({} training, {} held out)",
                                          digits.training.size(), digits.held_out.size());
    source.training = owned(std::move(digits.training));
    source.held_out = owned(std::move(digits.held_out));
  } else if (wanted == "synthetic") {
    source.data_description = "synthetic";
    source.training =
        owned(synthetic_samples(model, options, source.step.example, request.whole_batch));
  } else {
    source.training = owned(models::read_directory(wanted, options.dtype));
    source.data_description = fmt::format("{} ({} samples)", wanted, source.training->size());
  }
  return source;
}

}  // namespace autodist::app
