#include "autodist/app/output_file.h"

#include <unistd.h>

#include <filesystem>

#include "autodist/base/error.h"

namespace autodist::app {

void expect_writable(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    fail(ErrorCode::kEnvironment, "{} {}: is a folder, the name of a file expected", option, path);
  }
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return;  // a device, a pipe
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!fs::is_directory(folder, ignored)) {
    fail(ErrorCode::kEnvironment, "{} {}: there is no folder {}. Make it first.", option, path,
         folder);
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    fail(ErrorCode::kEnvironment, "{} {}: the folder {} cannot be written to", option, path,
         folder);
  }
}

}  // namespace autodist::app
