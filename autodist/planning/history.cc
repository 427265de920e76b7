#include "autodist/planning/history.h"

#include <algorithm>
#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/planning/defaults.h"

namespace autodist::planning {
namespace {

std::string short_digest(const cluster::Cluster& cluster) {
  return to_string(cluster::shape_digest(cluster)).substr(0, 8);
}

}  // namespace

std::string history_folder(const Environment& environment) {
  if (const auto own = environment("AUTODIST_HISTORY")) {
    const bool is_off = *own == "off" || *own == "OFF" || *own == "Off";
    return is_off ? "" : *own;
  }
  if (const auto state = environment("XDG_STATE_HOME"); state && !state->empty()) {
    return *state + "/autodist/history";
  }
  const auto home = environment("HOME");
  return home && !home->empty() ? *home + "/.local/state/autodist/history" : "";
}

DataCell history_cell(const ir::Graph& graph, const cluster::Cluster& cluster) {
  DataCell cell;
  cell.model = graph.name;
  std::replace(cell.model.begin(), cell.model.end(), '/', '_');  // a file's
  cell.cluster = short_digest(cluster) + "-b" + std::to_string(graph.example_batch);
  cell.graph = std::make_shared<const ir::Graph>(graph);
  cell.machines = cluster;
  return cell;
}

void add_to_history(const std::string& folder, const ir::Graph& graph,
                    const cluster::Cluster& cluster, strategy::Strategy strategy,
                    const Runtimes& runtimes) {
  set_id(strategy);
  const DataCell cell = history_cell(graph, cluster);
  try {
    write_cell(folder, cell);
    write_point(folder, cell, strategy, runtimes);
  } catch (const Error& error) {
    // A job is worth more than its place in a history: a home that cannot be written to has none.
    if (error.code() != ErrorCode::kEnvironment) throw;
  }
}

std::vector<DataCell> history_on(const std::string& folder, const cluster::Cluster& cluster) {
  std::vector<DataCell> cells;
  if (folder.empty() || !std::filesystem::is_directory(folder)) return cells;
  std::vector<std::string> warnings;
  try {
    cells = read_data_set(folder, warnings);
  } catch (const Error&) {
    return {};  // nothing in it yet
  }
  const std::string prefix = short_digest(cluster) + "-b";
  std::erase_if(cells, [&](const DataCell& cell) { return cell.cluster.rfind(prefix, 0) != 0; });
  return cells;
}

}  // namespace autodist::planning
