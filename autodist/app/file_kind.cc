#include "autodist/app/file_kind.h"

#include <filesystem>
#include <sstream>

#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/graph_item.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {
namespace {

// A line of YAML with the key, or a JSON object with it.
bool has_key(const std::string& text, const std::string& key) {
  if (text.find('"' + key + '"') != std::string::npos) return true;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key + ":", 0) == 0) return true;
  }
  return false;
}

}  // namespace

FileKind kind_of(const std::string& bytes, const std::string& name) {
  if (bytes.empty()) fail(ErrorCode::kUsage, "{}: empty. Write it again, or name another.", name);
  if (ir::looks_like_graph(bytes)) return FileKind::kGraph;
  const std::string extension = std::filesystem::path(name).extension();
  if (extension == ".adg") return FileKind::kGraph;
  if (extension == ".strategy" || extension == ".pbtxt") return FileKind::kStrategy;
  // First: the fields of a small graph_item could pass for those of a strategy, not the reverse.
  if (ir::looks_like_graph_item(bytes)) return FileKind::kGraphItem;
  if (strategy::looks_like_strategy(bytes)) return FileKind::kStrategy;
  if (is_text(bytes)) {
    const bool runtimes = has_key(bytes, "average") || has_key(bytes, "runtime");
    return runtimes ? FileKind::kRuntimes : FileKind::kCluster;
  }
  if (std::filesystem::path(name).filename() == "graph_item") return FileKind::kGraphItem;
  if (extension == ".yml" || extension == ".yaml") return FileKind::kCluster;
  fail(
      ErrorCode::kUsage,
      "{}: neither a graph, a graph_item, a strategy nor a cluster, or damaged. `autodist capture` "
      "makes graphs, `autodist plan -o` strategies.",
      name);
}

}  // namespace autodist::app
