// `autodist ckpt`: what checkpoints there are, and whether they are sound.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/torch/torch_verbs.h"
#include "autodist/base/error.h"
#include "autodist/base/units.h"
#include "autodist/exec/checkpoint.h"

namespace autodist::app {
namespace {

using Json = nlohmann::ordered_json;

struct CkptArguments {
  std::string doing;
  std::string path;
};

Bytes bytes_of(const std::vector<exec::TensorData>& tensors) {
  Bytes bytes;
  for (const exec::TensorData& tensor : tensors) {
    bytes += Bytes(static_cast<std::int64_t>(tensor.bytes.size()));
  }
  return bytes;
}

int list(exec::FileSystem& files, const std::string& path, Console& console) {
  const std::vector<std::int64_t> steps = exec::list_checkpoints(files, path);
  if (console.json) {
    console.out << Json{{"directory", path}, {"steps", steps}}.dump() << "\n";
    return 0;
  }
  for (std::int64_t step : steps) console.out << path << "/step-" << step << "\n";
  if (steps.empty()) console.out << path << ": no checkpoint\n";
  return 0;
}

// Every tensor is read and its digest compared; a damaged one is an error even where an older one
// could take its place.
int verify(exec::FileSystem& files, const std::string& path, Console& console) {
  std::vector<std::string> warnings;
  const exec::Checkpoint checkpoint = exec::read_checkpoint(files, path, &warnings);
  if (!warnings.empty()) throw Error(ErrorCode::kCheckpoint, warnings.front());
  if (console.json) {
    console.out << Json{{"step", checkpoint.step}, {"sound", true}}.dump() << "\n";
  } else {
    console.out << fmt::format("step {}: sound\n", checkpoint.step);
  }
  return 0;
}

int show(exec::FileSystem& files, const std::string& path, Console& console) {
  const exec::Checkpoint checkpoint = exec::read_checkpoint(files, path);
  Json tensors = Json::array();
  for (const exec::TensorData& tensor : checkpoint.model) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", name_of(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes.size()}});
  }
  if (console.json) {
    console.out << Json{{"step", checkpoint.step},
                        {"optimizer", checkpoint.optimizer},
                        {"program_digest", checkpoint.program_digest},
                        {"tensors", tensors}}
                       .dump()
                << "\n";
    return 0;
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
  verb.add_option("doing", arguments->doing, "list, verify or show")
      ->required()
      ->check(CLI::IsMember({"list", "verify", "show"}));
  verb.add_option("path", arguments->path, "a directory of checkpoints, or one step-N in it")
      ->required();
  return [arguments](Console& console) {
    exec::RealFileSystem files;
    if (arguments->doing == "list") return list(files, arguments->path, console);
    if (arguments->doing == "verify") return verify(files, arguments->path, console);
    return show(files, arguments->path, console);
  };
}

}  // namespace autodist::app
