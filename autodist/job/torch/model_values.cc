#include "autodist/job/torch/model_values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "autodist/base/error.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/tensor_data.h"

namespace autodist::job {
namespace {

const exec::TensorData* find(const std::vector<exec::TensorData>& tensors,
                             const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const exec::TensorData& each) { return each.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

// Parameters, then buffers.
std::vector<NamedTensor> model_tensors(const TrainingStep& step) {
  std::vector<NamedTensor> all = step.parameters;
  all.insert(all.end(), step.buffers.begin(), step.buffers.end());
  return all;
}

void put_model(const exec::Checkpoint& checkpoint, const TrainingStep& step,
               const std::string& where) {
  for (const NamedTensor& each : model_tensors(step)) {
    const exec::TensorData* found = find(checkpoint.model, each.name);
    if (found == nullptr) {
      fail(ErrorCode::kCheckpoint,
           "{}: no tensor '{}', which the model has. Another model's? --init (in a program: "
           "initial_weights) takes what there is by name.",
           where, each.name);
    }
    exec::copy_into(*found, each, where);
  }
}

}  // namespace

void put_weights(const std::string& path, const TrainingStep& step, const Warn& warn) {
  RealFileSystem files;
  const std::vector<exec::TensorData> tensors =
      exec::read_safetensors(files.read(path), path).tensors;
  const std::vector<NamedTensor> wanted = model_tensors(step);
  std::set<std::string> unused;
  for (const exec::TensorData& each : tensors) unused.insert(each.name);
  std::vector<std::string> missing;
  for (const NamedTensor& each : wanted) {
    const exec::TensorData* found = find(tensors, each.name);
    if (found == nullptr) {
      missing.push_back(each.name);
      continue;
    }
    exec::copy_into(*found, each, path);
    unused.erase(each.name);
  }
  if (missing.size() == wanted.size()) {
    fail(ErrorCode::kCheckpoint,
         "{}: none of its {} tensors has a name of the model's ('{}', …). Rename them, or take a "
         "file of this model.",
         path, tensors.size(), wanted.empty() ? "" : wanted.front().name);
  }
  if (!missing.empty()) {
    warn(fmt::format("{}: keeps their own first values: {}", path, fmt::join(missing, ", ")));
  }
  if (!unused.empty()) {
    warn(fmt::format("{}: the model has no {}", path, fmt::join(unused, ", ")));
  }
}

exec::Checkpoint read_into(FileSystem& files, const TrainingStep& step,
                           const std::string& directory, const Warn& warn) {
  std::vector<std::string> warnings;
  exec::Checkpoint checkpoint = exec::read_checkpoint(files, directory, &warnings);
  for (const std::string& warning : warnings) warn(warning);
  put_model(checkpoint, step, directory);
  return checkpoint;
}

}  // namespace autodist::job
