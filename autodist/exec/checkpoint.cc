#include "autodist/exec/checkpoint.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/digest.h"
#include "autodist/base/digest_stream.h"
#include "autodist/base/error.h"
#include "autodist/base/step_folders.h"

namespace autodist::exec {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kKeptFile = "kept.safetensors";

std::string replica_file(std::uint32_t rank) { return fmt::format("replica-{}.safetensors", rank); }

// Writes the files of one step and remembers what the manifest says of them.
class StepWriter {
 public:
  StepWriter(FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  void add(const std::string& name, const std::vector<TensorData>& tensors) {
    const std::string head = safetensors_head(tensors, {{"format", "pt"}});
    std::vector<std::string_view> pieces{head};
    DigestStream whole;
    whole.add(head.data(), head.size());
    std::size_t bytes = head.size();
    Json digests = Json::object();
    for (const TensorData& tensor : tensors) {
      const std::string_view piece = pieces.emplace_back(tensor.bytes);
      DigestStream alone;
      for (std::size_t at = 0; at < piece.size(); at += kBlock) {
        const std::string_view block = piece.substr(at, kBlock);
        alone.add(block.data(), block.size());
        whole.add(block.data(), block.size());
      }
      digests[tensor.name] = to_string(alone.result());
      bytes += piece.size();
    }
    manifest_["files"][name] = {
        {"bytes", bytes}, {"digest", to_string(whole.result())}, {"tensors", digests}};
    files_.write_synced(folder_ + "/" + name, pieces);
  }

  void finish(const Checkpoint& checkpoint) {
    manifest_["schema"] = kSchema;
    manifest_["step"] = checkpoint.step;
    if (!checkpoint.steps.empty()) manifest_["steps"] = checkpoint.steps;
    manifest_["program_digest"] = checkpoint.program_digest;
    manifest_["optimizer"] = checkpoint.optimizer;
    // Its own digest stands in it, so that a flipped bit of the manifest is noticed, too.
    manifest_["manifest_digest"] = to_string(digest_of(manifest_.dump()));
    const std::string text = manifest_.dump(1) + "\n";
    files_.write_synced(folder_ + "/" + kStepManifest, {text});
  }

 private:
  // Both digests read a block while a cache holds it.
  static constexpr std::size_t kBlock = 256 << 10;

  FileSystem& files_;
  std::string folder_;
  Json manifest_ = Json::object();
};

// As put_in_place() takes it; both outlive what it returns.
std::function<void(const std::string& folder)> writer_of(FileSystem& files,
                                                         const Checkpoint& checkpoint) {
  return [&files, &checkpoint](const std::string& folder) {
    StepWriter writer(files, folder);
    writer.add(kModelFile, checkpoint.model);
    writer.add(kOptimizerFile, checkpoint.optimizer_state);
    for (const auto& [rank, state] : checkpoint.replicas) writer.add(replica_file(rank), state);
    if (!checkpoint.kept.empty()) writer.add(kKeptFile, checkpoint.kept);
    writer.finish(checkpoint);
  };
}

constexpr char kAnother[] = " Take another step-N.";
constexpr char kWhere[] = "Name the folder that --save wrote, or a step-N in it.";

// `hint` ends what is said of a damaged file: whoever has others to go on with needs none.
Json read_manifest(FileSystem& files, const std::string& path, const char* hint) {
  Json manifest = Json::parse(files.read(path), nullptr, false);
  const auto has = [&](const char* key) { return manifest.contains(key); };
  const bool complete = manifest.is_object() && has("schema") && manifest["schema"].is_number() &&
                        has("step") && manifest["step"].is_number_integer() && has("files") &&
                        manifest["files"].is_object() && has("manifest_digest");
  if (!complete) fail(ErrorCode::kCheckpoint, "{}: damaged: not a manifest.{}", path, hint);
  if (manifest["schema"] != kSchema) {
    fail(ErrorCode::kCheckpoint,
         "{}: schema {}, this version reads {}. Read it with the version that wrote it.", path,
         manifest["schema"].dump(), kSchema);
  }
  const Json digest = manifest["manifest_digest"];
  manifest.erase("manifest_digest");
  if (digest != to_string(digest_of(manifest.dump()))) {
    fail(ErrorCode::kCheckpoint, "{}: damaged: its digest differs.{}", path, hint);
  }
  return manifest;
}

std::vector<TensorData> read_tensors(FileSystem& files, const std::string& folder,
                                     const std::string& name, const Json& manifest,
                                     const char* hint) {
  const std::string path = folder + "/" + name;
  if (!manifest["files"].contains(name)) {
    fail(ErrorCode::kCheckpoint, "{}: the manifest does not know it.{}", path, hint);
  }
  const std::string bytes = files.read(path);
  const Json& entry = manifest["files"][name];
  if (entry["bytes"] != bytes.size()) {
    fail(ErrorCode::kCheckpoint, "{}: damaged: {} bytes, {} were written.{}", path, bytes.size(),
         entry["bytes"].dump(), hint);
  }
  const auto refuse_header = [&] {
    fail(ErrorCode::kCheckpoint, "{}: damaged: its header differs from what was written.{}", path,
         hint);
  };
  Safetensors file;
  try {
    file = read_safetensors(bytes, path);
  } catch (const Error&) {  // its hint is for files that somebody names
    refuse_header();
  }
  for (const TensorData& tensor : file.tensors) {
    const auto& digests = entry["tensors"];
    if (!digests.contains(tensor.name) ||
        digests[tensor.name] != to_string(digest_of(tensor.bytes))) {
      fail(ErrorCode::kCheckpoint, "{}: damaged: '{}' differs from what was written.{}", path,
           tensor.name, hint);
    }
  }
  if (entry["digest"] != to_string(digest_of(bytes))) refuse_header();
  return std::move(file.tensors);
}

Checkpoint read_step(FileSystem& files, const std::string& folder, const char* hint = "") {
  const Json manifest = read_manifest(files, folder + "/" + kStepManifest, hint);
  Checkpoint checkpoint;
  checkpoint.step = manifest["step"].get<std::int64_t>();
  if (manifest.contains("steps")) {
    checkpoint.steps = manifest["steps"].get<std::map<std::string, std::int64_t>>();
  }
  checkpoint.program_digest = manifest.value("program_digest", "");
  checkpoint.optimizer = manifest.value("optimizer", "");
  checkpoint.model = read_tensors(files, folder, kModelFile, manifest, hint);
  checkpoint.optimizer_state = read_tensors(files, folder, kOptimizerFile, manifest, hint);
  if (manifest["files"].contains(kKeptFile)) {
    checkpoint.kept = read_tensors(files, folder, kKeptFile, manifest, hint);
  }
  for (const auto& [name, entry] : manifest["files"].items()) {
    std::uint32_t rank = 0;
    constexpr std::string_view kPrefix = "replica-";
    if (name.rfind(kPrefix, 0) != 0) continue;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), rank);
    checkpoint.replicas[rank] = read_tensors(files, folder, name, manifest, hint);
  }
  return checkpoint;
}

}  // namespace

std::string folder_of(const std::string& directory, std::int64_t step) {
  const std::string folder = step_folder(directory, step);
  const std::filesystem::path path = std::filesystem::path(directory + "/").parent_path();
  return path.filename() == std::filesystem::path(folder).filename() ? directory : folder;
}

std::string whole_folder_of(FileSystem& files, const std::string& directory, std::int64_t step) {
  return whole_or_own(files, folder_of(directory, step));
}

void write_checkpoint(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                      int keep, const std::function<void()>& written) {
  AD_CHECK(keep >= 2) << "a checkpoint may only be removed when a sound one remains";
  put_in_place(files, directory, checkpoint.step, /*as_snapshot=*/false,
               writer_of(files, checkpoint), written);
  std::vector<std::int64_t> steps;  // but for snapshots
  for (const std::int64_t step : list_checkpoints(files, directory)) {
    if (!is_snapshot(files, directory, step)) steps.push_back(step);
  }
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < steps.size(); ++i) {
    if (steps[i] != checkpoint.step) remove_step(files, directory, steps[i]);
  }
}

void write_snapshot(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                    const std::function<void()>& written) {
  put_in_place(files, directory, checkpoint.step, /*as_snapshot=*/true,
               writer_of(files, checkpoint), written);
}

std::optional<std::int64_t> newest_checkpoint(FileSystem& files, const std::string& path) {
  if (const auto here = whole_folders(files, path); !here.empty()) {
    const std::string manifest = here.front() + "/" + kStepManifest;
    return read_manifest(files, manifest, kAnother)["step"].get<std::int64_t>();
  }
  if (!files.exists(path)) return std::nullopt;
  const std::vector<std::int64_t> steps = list_checkpoints(files, path);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

bool has_checkpoint(FileSystem& files, const std::string& path) {
  if (!whole_folders(files, path).empty()) return true;
  return files.exists(path) && !list_checkpoints(files, path).empty();
}

Checkpoint read_checkpoint(FileSystem& files, const std::string& path,
                           std::vector<std::string>* warnings) {
  if (const auto here = whole_folders(files, path); !here.empty()) {
    return read_step(files, here.front(), kAnother);
  }
  if (!files.exists(path)) {
    fail(ErrorCode::kCheckpoint, "{}: no such checkpoint. {}", path, kWhere);
  }
  std::vector<std::int64_t> steps = list_checkpoints(files, path);
  std::string first_reason;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    std::vector<std::string> folders = whole_folders(files, step_folder(path, *step));
    if (folders.empty()) folders.push_back(step_folder(path, *step));  // to say what it lacks
    for (const std::string& folder : folders) {
      try {
        return read_step(files, folder);
      } catch (const Error& error) {
        if (first_reason.empty()) first_reason = error.what();
        if (warnings != nullptr) warnings->push_back(error.what());
      }
    }
  }
  if (first_reason.empty()) {
    fail(ErrorCode::kCheckpoint, "{}: no sound checkpoint: no folder step-N in it. {}", path,
         kWhere);
  }
  if (first_reason.back() == '.') first_reason.pop_back();
  fail(ErrorCode::kCheckpoint, "{}: no sound checkpoint: {}. Name another folder, or begin anew.",
       path, first_reason);
}

}  // namespace autodist::exec
