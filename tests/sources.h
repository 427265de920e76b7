// The sources below autodist/, for tests that read them.

#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace autodist::testing_jobs {

struct Source {
  std::string path;  // below autodist/
  std::vector<std::string> lines;
};

// All headers and .cc files.
inline const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(AUTODIST_SOURCE_DIR) / "autodist";
    std::vector<Source> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      Source source{fs::relative(entry.path(), folder), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) source.lines.push_back(line);
      found.push_back(std::move(source));
    }
    return found;
  }();
  return all;
}

// A test, or what tests share.
inline bool is_for_tests(const std::string& path) {
  return path.find("_test.cc") != std::string::npos || path.find("/testing/") != std::string::npos;
}

}  // namespace autodist::testing_jobs
