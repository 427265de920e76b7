#include "autodist/base/step_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>

#include "autodist/base/numbers.h"

namespace autodist {
namespace {

constexpr char kSnapshotMark[] = "snapshot";  // an empty file
constexpr std::string_view kAside = ".old";

std::string aside_of(const std::string& folder) { return fmt::format("{}{}", folder, kAside); }

// "step-12" and "step-12.old" -> 12; nothing for step-12.tmp and everything else.
std::optional<std::int64_t> step_of(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const bool is_aside =
      name.size() > kAside.size() && name.substr(name.size() - kAside.size()) == kAside;
  if (is_aside) name.remove_suffix(kAside.size());
  const auto step = as_number<std::int64_t>(name);
  return step && *step >= 0 ? step : std::nullopt;
}

// What is left of a step that could not be written takes room that the next one needs. Failures are
// passed over: the one that led here is told.
void take_back(FileSystem& files, const std::string& folder) {
  try {
    files.remove_all(folder + ".tmp");
    const std::string aside = aside_of(folder);
    if (!files.exists(folder) && files.exists(aside)) files.rename(aside, folder);
  } catch (const std::exception&) {
  }
}

}  // namespace

std::string step_folder(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/step-{}", directory, step);
}

std::vector<std::string> whole_folders(FileSystem& files, const std::string& folder) {
  std::vector<std::string> whole;
  const auto add = [&](const std::string& each) {
    if (files.exists(fmt::format("{}/{}", each, kStepManifest))) whole.push_back(each);
  };
  add(folder);
  const bool is_of_step = step_of(std::filesystem::path(folder).filename().string()).has_value();
  if (is_of_step) add(aside_of(folder));
  return whole;
}

std::string whole_or_own(FileSystem& files, const std::string& folder) {
  const std::vector<std::string> whole = whole_folders(files, folder);
  return whole.empty() ? folder : whole.front();
}

std::vector<std::int64_t> list_checkpoints(FileSystem& files, const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : files.list(directory)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

bool has_step(FileSystem& files, const std::string& directory, std::int64_t step) {
  const std::string folder = step_folder(directory, step);
  return files.exists(folder) || files.exists(aside_of(folder));
}

bool is_snapshot(FileSystem& files, const std::string& directory, std::int64_t step) {
  const std::string folder = whole_or_own(files, step_folder(directory, step));
  return files.exists(fmt::format("{}/{}", folder, kSnapshotMark));
}

void put_in_place(FileSystem& files, const std::string& directory, std::int64_t step,
                  bool as_snapshot, const std::function<void(const std::string& folder)>& write,
                  const std::function<void()>& written) {
  const std::string folder = step_folder(directory, step);
  const std::string partial = folder + ".tmp";
  const std::string aside = aside_of(folder);
  files.make_folder(directory);
  files.remove_all(partial);
  try {
    files.make_folder(partial);
    write(partial);
    if (as_snapshot) files.write_synced(fmt::format("{}/{}", partial, kSnapshotMark), {});
    files.sync_folder(partial);
    // The same step again, after a resume: the old one steps aside until the new one is in place.
    if (files.exists(folder)) {
      files.remove_all(aside);
      files.rename(folder, aside);
    }
    files.rename(partial, folder);
    files.sync_folder(directory);
  } catch (const std::exception&) {
    take_back(files, folder);
    throw;
  }
  if (written) written();
  files.remove_all(aside);
  remove_snapshots(files, directory, step - 1);
}

void remove_step(FileSystem& files, const std::string& directory, std::int64_t step) {
  const std::string folder = step_folder(directory, step);
  files.remove_all(folder);
  files.remove_all(aside_of(folder));
}

void remove_snapshots(FileSystem& files, const std::string& directory, std::int64_t last) {
  for (const std::int64_t step : list_checkpoints(files, directory)) {
    if (step <= last && is_snapshot(files, directory, step)) remove_step(files, directory, step);
  }
}

}  // namespace autodist
