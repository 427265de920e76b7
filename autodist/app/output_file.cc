#include "autodist/app/output_file.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "autodist/base/error.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void expect_open(const std::string& option, const std::string& path, const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    fail(ErrorCode::kEnvironment, "{} {}: there is no folder {}. Make it first.", option, path,
         folder);
  }
  if (!fs::is_directory(folder, ignored)) {
    fail(ErrorCode::kEnvironment, "{} {}: {} is a file, a folder expected. Name another.", option,
         path, folder);
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    fail(ErrorCode::kEnvironment, "{} {}: the folder {} cannot be written to. Name another.",
         option, path, folder);
  }
}

}  // namespace

void expect_writable(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    fail(ErrorCode::kEnvironment, "{} {}: is a folder, the name of a file expected. Add one to it.",
         option, path);
  }
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return;  // a device, a pipe
  expect_open(option, path, folder_of(path));
}

void expect_appendable(const std::string& option, const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return expect_writable(option, path);
  if (::access(path.c_str(), W_OK) != 0) {
    fail(ErrorCode::kEnvironment, "{} {}: cannot be written to. Name another.", option, path);
  }
}

void expect_folder(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  std::string existing = path;
  while (!fs::exists(existing, ignored) && folder_of(existing) != existing) {
    existing = folder_of(existing);
  }
  expect_open(option, path, existing);
}

void expect_apart(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read) {
  std::error_code ignored;
  std::map<fs::path, std::string> options;
  for (const NamedFile& each : written) {
    if (fs::exists(each.path, ignored) && !fs::is_regular_file(each.path, ignored)) continue;
    const fs::path place = fs::weakly_canonical(fs::absolute(each.path, ignored), ignored);
    const auto [other, is_first] = options.emplace(place, each.option);
    if (is_first) continue;
    fail(ErrorCode::kUsage, "{} {}: {} is the same file, and one would be lost. Name another.",
         each.option, each.path, other->second);
  }
  for (const NamedFile& each : read) {
    if (!fs::is_regular_file(each.path, ignored)) continue;
    const auto writes = options.find(fs::weakly_canonical(each.path, ignored));
    if (writes == options.end()) continue;
    fail(ErrorCode::kUsage, "{} {}: is read as {}, and would be lost. Name another.",
         writes->second, each.path, each.option);
  }
}

}  // namespace autodist::app
