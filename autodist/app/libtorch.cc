#include "autodist/app/libtorch.h"

#include <filesystem>
#include <fstream>

namespace autodist::app {
namespace {

// Where pip installed this program, torch is its package's neighbour; else it is where it was built
// on.
std::string folder_of_torch(const std::string& built_on) {
  if (built_on.empty()) return "";
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto packages = program.parent_path().parent_path().parent_path();
  const bool is_there = std::filesystem::exists(packages / "torch" / "version.py", error);
  return is_there ? (packages / "torch").string() : built_on;
}

}  // namespace

LibtorchOfBuild libtorch_of_build() {
  return {AUTODIST_TORCH_VERSION, folder_of_torch(AUTODIST_TORCH_FOLDER), AUTODIST_TORCH_DEVICES};
}

std::string torch_version_in(const std::string& folder) {
  std::ifstream file(folder + "/version.py");
  const std::string begin = "__version__ = '";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(begin, 0) != 0) continue;
    return line.substr(begin.size(), line.find('\'', begin.size()) - begin.size());
  }
  return "";
}

}  // namespace autodist::app
