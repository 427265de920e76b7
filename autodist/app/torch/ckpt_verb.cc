// `autodist ckpt`: what checkpoints there are, whether they are sound, and parts of them.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/step_folders.h"
#include "autodist/base/text.h"
#include "autodist/base/units.h"
#include "autodist/exec/checkpoint.h"

namespace autodist::app {
namespace {

using Json = nlohmann::ordered_json;

struct CkptArguments {
  std::string doing;
  std::string path;
  std::vector<std::string> only;  // names of tensors, or parts of names
  std::string output;
};

Bytes bytes_of(const std::vector<exec::TensorData>& tensors) {
  Bytes bytes;
  for (const exec::TensorData& tensor : tensors) {
    bytes += Bytes(static_cast<std::int64_t>(tensor.bytes.size()));
  }
  return bytes;
}

void expect_checkpoints(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return;
  fail(ErrorCode::kCheckpoint,
       "ckpt: {} {}. Name the folder that `autodist train --save` wrote, or a step-N in it.", path,
       std::filesystem::exists(path, error) ? "is a file" : "is not there");
}

struct Found {
  std::int64_t step;
  std::string folder;
};

// Below a folder, ascending, or that folder itself.
std::vector<Found> found_in(FileSystem& files, const std::string& path) {
  std::vector<Found> found;
  for (const std::int64_t step : list_checkpoints(files, path)) {
    found.push_back({step, exec::whole_folder_of(files, path, step)});
  }
  if (!found.empty()) return found;
  if (const auto itself = exec::newest_checkpoint(files, path)) found.push_back({*itself, path});
  return found;
}

int list(FileSystem& files, const std::string& path, Console& console) {
  const std::vector<Found> found = found_in(files, path);
  if (console.json) {
    Json steps = Json::array();
    Json paths = Json::array();
    for (const Found& each : found) {
      steps.push_back(each.step);
      paths.push_back(each.folder);
    }
    return console.answer({{"directory", path}, {"steps", steps}, {"paths", paths}});
  }
  for (const Found& each : found) console.out << each.folder << "\n";
  if (found.empty()) console.out << path << ": no checkpoint\n";
  return 0;
}

int latest(FileSystem& files, const std::string& path, Console& console) {
  const std::vector<Found> found = found_in(files, path);
  if (found.empty()) {
    fail(ErrorCode::kCheckpoint, "{}: no checkpoint. `autodist train --save {}` writes them.", path,
         path);
  }
  const auto& [step, newest] = found.back();
  if (console.json) return console.answer({{"step", step}, {"path", newest}});
  console.out << newest << "\n";
  return 0;
}

bool is_wanted(const std::string& name, const std::vector<std::string>& only) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

// What `train --init` takes: parameters and buffers by name.
int extract(FileSystem& files, const CkptArguments& arguments, Console& console) {
  if (arguments.output.empty()) {
    fail(ErrorCode::kUsage, "ckpt extract: -o is missing. Add -o FILE.safetensors.");
  }
  const exec::Checkpoint checkpoint = exec::read_checkpoint(files, arguments.path);
  exec::Safetensors part;
  for (const exec::TensorData& tensor : checkpoint.model) {
    if (is_wanted(tensor.name, arguments.only)) part.tensors.push_back(tensor);
  }
  for (const std::string& each : arguments.only) {
    const auto& all = checkpoint.model;
    if (std::none_of(all.begin(), all.end(), [&](const exec::TensorData& tensor) {
          return is_wanted(tensor.name, {each});
        })) {
      fail(ErrorCode::kUsage, "{}: no tensor's name holds '{}'; `autodist ckpt show` lists them",
           arguments.path, each);
    }
  }
  write_file_atomically(arguments.output, exec::write_safetensors(part));
  if (console.json) {
    Json names = Json::array();
    for (const exec::TensorData& tensor : part.tensors) names.push_back(tensor.name);
    return console.answer({{"file", arguments.output}, {"tensors", names}});
  }
  console.out << fmt::format("{}: {} of {} tensors, {}\n", arguments.output, part.tensors.size(),
                             checkpoint.model.size(), to_string(bytes_of(part.tensors)));
  return 0;
}

// Every tensor is read and its digest compared; a damaged one is an error even where an older one
// could take its place.
int verify(FileSystem& files, const std::string& path, Console& console) {
  std::vector<std::string> warnings;
  const exec::Checkpoint checkpoint = exec::read_checkpoint(files, path, &warnings);
  if (!warnings.empty()) {
    fail(ErrorCode::kCheckpoint, "{}. Take step-{}.", without_dot(warnings.front()),
         checkpoint.step);
  }
  if (console.json) return console.answer({{"step", checkpoint.step}, {"sound", true}});
  console.out << fmt::format("step {}: sound\n", checkpoint.step);
  return 0;
}

int show(FileSystem& files, const std::string& path, Console& console) {
  const exec::Checkpoint checkpoint = exec::read_checkpoint(files, path);
  Json tensors = Json::array();
  for (const exec::TensorData& tensor : checkpoint.model) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", name_of(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes.size()}});
  }
  if (console.json) {
    return console.answer({{"step", checkpoint.step},
                           {"optimizer", checkpoint.optimizer},
                           {"program_digest", checkpoint.program_digest},
                           {"tensors", tensors}});
  }
  console.out << fmt::format("step {}, {}, model {}, optimizer state {}\n", checkpoint.step,
                             checkpoint.optimizer, to_string(bytes_of(checkpoint.model)),
                             to_string(bytes_of(checkpoint.optimizer_state)));
  for (const exec::TensorData& tensor : checkpoint.model) {
    console.out << fmt::format("  {:<40} {:>5} [{}]\n", tensor.name, name_of(tensor.dtype),
                               fmt::join(tensor.shape, ","));
  }
  return 0;
}

}  // namespace

Action declare_ckpt(CLI::App& verb) {
  auto arguments = std::make_shared<CkptArguments>();
  verb.add_option("doing", arguments->doing,
                  "list; latest (its path); verify; show; or extract (some of its parameters and "
                  "buffers into one file, for train --init)")
      ->required()
      ->check(CLI::IsMember({"list", "latest", "verify", "show", "extract"}));
  verb.add_option("path", arguments->path, "a directory of checkpoints, or one step-N in it")
      ->required();
  verb.add_option(
      "--only", arguments->only,
      "extract: tensors whose name holds this; several times for several (default: all)");
  verb.add_option("-o,--output", arguments->output, "extract: write this safetensors file");
  return [arguments, &verb](Console& console) {
    expect_of_part(verb, arguments->doing, {{"extract", {"--only", "--output"}}});
    RealFileSystem files;
    expect_checkpoints(arguments->path);
    if (arguments->doing == "latest") return latest(files, arguments->path, console);
    if (arguments->doing == "extract") return extract(files, *arguments, console);
    if (arguments->doing == "list") return list(files, arguments->path, console);
    if (arguments->doing == "verify") return verify(files, arguments->path, console);
    return show(files, arguments->path, console);
  };
}

}  // namespace autodist::app
