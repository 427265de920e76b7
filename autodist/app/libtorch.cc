#include "autodist/app/libtorch.h"

#include <fstream>

namespace autodist::app {

LibtorchOfBuild libtorch_of_build() {
  return {AUTODIST_TORCH_VERSION, AUTODIST_TORCH_FOLDER, AUTODIST_TORCH_DEVICES};
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
