#include "autodist/job/gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "autodist/base/text.h"

namespace autodist::job {
namespace {

namespace fs = std::filesystem;

const char* const kDriver = "/proc/driver/nvidia";

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string bare(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

std::string gpu_driver() { return line_of(fs::path(kDriver) / "version"); }

std::vector<std::string> gpu_models() {
  std::vector<std::string> models;
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(fs::path(kDriver) / "gpus", error)) {
    folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    const std::string line = line_of(folder / "information");  // "Model: \t\t NVIDIA H100"
    const std::string model = bare(line.substr(line.find(':') + 1));
    if (!model.empty()) models.push_back(model);
  }
  return models;
}

std::string lacking_gpu(const GpusFound& found, std::uint32_t index, const std::string& libtorch) {
  if (!found.for_cuda) {
    return fmt::format(
        "this libtorch ({}) is built for CPUs. Build with a torch for CUDA (docs/pytorch.md)",
        libtorch);
  }
  if (found.count == 0 && !found.has_driver) {
    return fmt::format(
        "libtorch finds no GPU here: there is no driver of NVIDIA's ({} is not there). Install it",
        kDriver);
  }
  if (found.count == 0) {
    return "libtorch finds no GPU here, though there is a driver. Look at CUDA_VISIBLE_DEVICES and "
           "`nvidia-smi` (an old driver needs an older torch)";
  }
  if (index < found.count) return "";
  if (found.count == 1) return "there is 1 here (GPU 0). Correct its list of gpus";
  return fmt::format("there are {} here (GPU 0 to {}). Correct its list of gpus", found.count,
                     found.count - 1);
}

RankGpu rank_gpu(std::uint32_t index, const std::vector<std::string>& models,
                 const Environment& environment) {
  RankGpu gpu;
  const std::vector<std::string> visible =
      split(environment("CUDA_VISIBLE_DEVICES").value_or(""), ',');
  gpu.name = index < visible.size() ? bare(visible[index]) : std::to_string(index);
  const bool alike = std::all_of(models.begin(), models.end(),
                                 [&](const std::string& each) { return each == models.front(); });
  if (!models.empty() && alike) gpu.model = models.front();
  return gpu;
}

std::string to_string(const RankGpu& gpu) { return gpu.name + "\n" + gpu.model; }

RankGpu parse_gpu(const std::string& text) {
  const std::size_t end = text.find('\n');
  return {text.substr(0, end), text.substr(end + 1)};
}

std::string sharing_line(const cluster::Cluster& cluster, const std::vector<cluster::Place>& places,
                         const std::vector<RankGpu>& gpus) {
  std::map<std::pair<std::size_t, std::string>, std::vector<std::size_t>> ranks;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (!gpus[rank].name.empty()) ranks[{places[rank].node, gpus[rank].name}].push_back(rank);
  }
  std::vector<std::string> shared;
  for (const auto& [gpu, sharing] : ranks) {
    if (sharing.size() < 2) continue;
    shared.push_back(fmt::format("ranks {} on GPU {} of {}", fmt::join(sharing, ", "), gpu.second,
                                 cluster.nodes[gpu.first].address));
  }
  if (shared.empty()) return "";
  return fmt::format(
      "{}: they share it, and take turns. If that is not meant, look at CUDA_VISIBLE_DEVICES.",
      fmt::join(shared, "; "));
}

std::string mixed_line(const std::vector<cluster::Place>& places) {
  std::size_t computing = 0;
  std::size_t on_gpus = 0;
  for (const cluster::Place& place : places) {
    if (place.serves_only) continue;
    ++computing;
    if (place.device.kind == cluster::DeviceKind::kGpu) ++on_gpus;
  }
  if (on_gpus == 0 || on_gpus == computing) return "";
  return fmt::format(
      "{} of {} ranks compute on GPUs, the others on CPUs: a step takes as long as the slowest of "
      "them (docs/gpus.md)",
      on_gpus, computing);
}

std::string unused_line(std::size_t count) {
  if (count == 0) return "";
  return fmt::format("{} here and not used; list {} with gpus: in a cluster file (docs/gpus.md)",
                     count == 1 ? "1 GPU is" : fmt::format("{} GPUs are", count),
                     count == 1 ? "it" : "them");
}

}  // namespace autodist::job
