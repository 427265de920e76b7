#include "autodist/app/file_kind.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/graph_item.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {
namespace {

// A line of YAML with the key, or a JSON object with it.
bool has_key(const std::string& text, const std::string& key) {
  const std::string lines = fmt::format("\n{}", text);
  return lines.find(fmt::format("\"{}\"", key)) != std::string::npos ||
         lines.find(fmt::format("\n{}:", key)) != std::string::npos;
}

// What trainings and predictions leave behind, by its first bytes.
std::optional<FileKind> kind_of_record(const std::string& bytes) {
  const std::string head = bytes.substr(0, 4096);
  if (head.rfind("step,", 0) == 0) return FileKind::kLog;
  const auto has = [&](const char* key) { return head.find(key) != std::string::npos; };
  if (head.front() == '[' && has("\"prediction\"")) return FileKind::kSweep;
  if (head.front() != '{') return std::nullopt;
  if (has("\"traceEvents\"")) return FileKind::kTrace;
  if (has("\"bound_seconds\"")) return FileKind::kPrediction;
  const auto first = nlohmann::json::parse(first_line(head), nullptr, false);
  if (first.is_object() && first.contains("step")) return FileKind::kLog;
  return std::nullopt;
}

}  // namespace

FileKind kind_of(const std::string& bytes, const std::string& name) {
  if (bytes.empty()) fail(ErrorCode::kUsage, "{}: empty. Write it again, or name another.", name);
  if (const auto record = kind_of_record(bytes)) return *record;
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
