// Every #include under autodist/ against layers.txt, the declaration that CMake links by.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sources.h"

namespace {

namespace fs = std::filesystem;
using autodist::testing_jobs::is_for_tests;
using autodist::testing_jobs::Source;
using autodist::testing_jobs::sources;

struct Layers {
  std::map<std::string, std::set<std::string>> below;
  std::set<std::string> torch_rooms;
  // (from, to) -> the only headers of `to` that `from` may include
  std::map<std::pair<std::string, std::string>, std::set<std::string>> only;
  std::set<std::string> torch_headers;
};

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

Layers read_layers() {
  static const std::regex kLayer("^([a-z0-9_/]+)( \\[torch\\])?:(.*)$");
  static const std::regex kOnly("^only ([a-z0-9_/]+) -> ([a-z0-9_/]+):(.*)$");
  static const std::regex kTorch("^torch in headers:(.*)$");
  Layers layers;
  std::ifstream in(AUTODIST_SOURCE_DIR "/layers.txt");
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (line.empty() || line[0] == '#') continue;
    if (std::regex_match(line, match, kTorch)) {
      layers.torch_headers = words(match[1]);
    } else if (std::regex_match(line, match, kOnly)) {
      layers.only[{match[1], match[2]}] = words(match[3]);
    } else if (std::regex_match(line, match, kLayer)) {
      layers.below[match[1]] = words(match[3]);
      if (match[2].length() > 0) layers.torch_rooms.insert(match[1]);
    } else {
      ADD_FAILURE() << "layers.txt: not understood: " << line;
    }
  }
  return layers;
}

// The declared layer that a path below autodist/ belongs to: the longest prefix.
std::string layer_of(const Layers& layers, const std::string& path) {
  std::string best;
  for (const auto& [name, below] : layers.below) {
    if (path.rfind(name + "/", 0) == 0 && name.size() > best.size()) best = name;
  }
  return best;
}

struct Include {
  std::string file;  // below autodist/
  std::string target;
};

const std::vector<Include>& all_includes() {
  static const std::vector<Include> all = [] {
    const std::regex include("^\\s*#\\s*include\\s+[<\"]([^>\"]+)[>\"].*$");
    std::vector<Include> found;
    for (const Source& source : sources()) {
      for (const std::string& line : source.lines) {
        std::smatch match;
        if (std::regex_match(line, match, include)) found.push_back({source.path, match[1]});
      }
    }
    return found;
  }();
  return all;
}

TEST(IncludeOrder, EveryFileBelongsToADeclaredLayer) {
  const Layers layers = read_layers();
  for (const Include& include : all_includes()) {
    EXPECT_NE(layer_of(layers, include.file), "") << include.file;
  }
}

TEST(IncludeOrder, NobodyIncludesUpwards) {
  const Layers layers = read_layers();
  int checked = 0;
  for (const Include& include : all_includes()) {
    if (include.target.rfind("autodist/", 0) != 0) continue;
    const std::string target = include.target.substr(9);
    const std::string from = layer_of(layers, include.file);
    const std::string to = layer_of(layers, target);
    ++checked;
    if (from == to) continue;
    EXPECT_EQ(layers.below.at(from).count(to), 1u)
        << "autodist/" << include.file << " includes " << include.target << ", but " << from
        << " may not include " << to;
    const auto only = layers.only.find({from, to});
    if (only != layers.only.end()) {
      EXPECT_EQ(only->second.count(target.substr(to.size() + 1)), 1u)
          << "autodist/" << include.file << " includes " << include.target
          << ", which is not among the headers of " << to << " that " << from << " may include";
    }
  }
  EXPECT_GT(checked, 50);
}

// "Private to …" stands in a header that no other room may include.
TEST(IncludeOrder, PrivateHeadersStayInTheirRoom) {
  const Layers layers = read_layers();
  std::set<std::string> private_headers;
  for (const Source& source : sources()) {
    if (fs::path(source.path).extension() != ".h") continue;
    for (const std::string& line : source.lines) {
      if (line == "#pragma once") break;
      if (line.find("Private to") != std::string::npos) private_headers.insert(source.path);
    }
  }
  EXPECT_FALSE(private_headers.empty());
  for (const Include& include : all_includes()) {
    if (include.target.rfind("autodist/", 0) != 0) continue;
    const std::string target = include.target.substr(9);
    if (private_headers.count(target) == 0) continue;
    EXPECT_EQ(layer_of(layers, include.file), layer_of(layers, target))
        << "autodist/" << include.file << " includes " << include.target;
  }
}

TEST(IncludeOrder, TestsAloneIncludeWhatIsForTests) {
  for (const Include& include : all_includes()) {
    if (include.target.rfind("autodist/", 0) != 0 || !is_for_tests(include.target)) continue;
    EXPECT_TRUE(is_for_tests(include.file))
        << "autodist/" << include.file << " includes " << include.target;
  }
}

bool is_torch(const std::string& target) {
  static const std::regex kTorch("^(torch|ATen|c10|caffe2)/.*$");
  return std::regex_match(target, kTorch);
}

TEST(IncludeOrder, TorchStaysInItsRooms) {
  const Layers layers = read_layers();
  for (const Include& include : all_includes()) {
    if (!is_torch(include.target)) continue;
    EXPECT_EQ(layers.torch_rooms.count(layer_of(layers, include.file)), 1u)
        << "autodist/" << include.file << " includes " << include.target;
  }
}

// A room's own headers may take torch along; what another room sees of it is an opt-in header.
TEST(IncludeOrder, OtherRoomsSeeTorchThroughOptInHeadersAlone) {
  const Layers layers = read_layers();
  std::set<std::string> torch_headers;
  for (const Include& include : all_includes()) {
    if (is_torch(include.target) && fs::path(include.file).extension() == ".h") {
      torch_headers.insert(include.file);
    }
  }
  EXPECT_FALSE(torch_headers.empty());
  for (const Include& include : all_includes()) {
    if (include.target.rfind("autodist/", 0) != 0) continue;
    const std::string target = include.target.substr(9);
    const bool crosses = layer_of(layers, include.file) != layer_of(layers, target);
    if (!crosses || torch_headers.count(target) == 0) continue;
    EXPECT_EQ(layers.torch_headers.count(target), 1u)
        << "autodist/" << include.file << " includes " << include.target
        << ", which takes torch along";
  }
}

TEST(IncludeOrder, LibrariesNeitherPrintNorExitNorReadTheEnvironment) {
  static const std::regex kForbidden(
      "std::(cout|cerr|clog)\\b|fmt::print|\\b(v?f?printf|f?puts|f?putc|putchar|perror)\\("
      "|\\b(quick_)?exit\\(|\\b((secure_)?getenv|(un)?setenv|putenv)\\(");
  static const std::regex kEnvironment("\\benviron\\b");
  // It gives a child process an environment, before another program takes the child's place.
  const std::string launcher = "job/launch.cc";
  int read = 0;
  for (const auto& [path, lines] : sources()) {
    if (path.rfind("app/", 0) == 0 || path.find("_test.cc") != std::string::npos) continue;
    ++read;
    int number = 0;
    for (const std::string& line : lines) {
      ++number;
      const std::string code = line.substr(0, line.find("//"));
      EXPECT_FALSE(std::regex_search(code, kForbidden)) << path << ":" << number << ": " << line;
      EXPECT_FALSE(path != launcher && std::regex_search(code, kEnvironment))
          << path << ":" << number << ": " << line;
    }
  }
  EXPECT_GT(read, 500);
}

}  // namespace
