#include "autodist/planning/archive.h"

#include <algorithm>
#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/graph_item.h"

namespace autodist::planning {

namespace fs = std::filesystem;

std::string archive_folder() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  return (program.parent_path().parent_path() / "share" / "autodist" / "graphs").string();
}

std::string shipped_clusters() {
  return (fs::path(archive_folder()).parent_path() / "clusters").string();
}

std::vector<std::string> archived_graphs() {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(archive_folder(), missing)) {
    if (entry.path().extension() == ".adg") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

ir::Graph parse_graph(const std::string& bytes, const std::string& where) {
  return ir::looks_like_graph_item(bytes)
             ? ir::variables_of(ir::deserialize_graph_item(bytes, where), where)
             : ir::deserialize(bytes, where);
}

ir::Graph load_graph(const std::string& name_or_path) {
  const std::string shipped = (fs::path(archive_folder()) / (name_or_path + ".adg")).string();
  const bool is_name = name_or_path.find('/') == std::string::npos;
  std::error_code unknown;
  const bool is_shipped = is_name && fs::exists(shipped, unknown);
  // A folder of that name, of checkpoints say, is no graph.
  const bool is_folder = fs::is_directory(name_or_path, unknown);
  if (fs::exists(name_or_path, unknown) && !(is_shipped && is_folder)) {
    return parse_graph(read_file(name_or_path), name_or_path);
  }
  if (is_shipped) return ir::read_graph(shipped);
  const std::string meant = is_name ? nearest(name_or_path, archived_graphs()) : "";
  fail(ErrorCode::kUsage,
       "graph: '{}' is neither a file nor a shipped graph{}. Make one with `autodist capture MODEL "
       "-o step.adg`.",
       name_or_path, meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant));
}

}  // namespace autodist::planning
