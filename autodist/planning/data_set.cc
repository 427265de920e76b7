#include "autodist/planning/data_set.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/graph_item.h"
#include "autodist/planning/archive.h"

namespace autodist::planning {
namespace {

namespace fs = std::filesystem;

const char* const kGraph = "graph.adg";

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The first of these names that the folder has.
std::optional<fs::path> first_of(const fs::path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (fs::exists(folder / name)) return folder / name;
  }
  return {};
}

// A point's own file below `folder`.
std::optional<fs::path> file_of(const std::optional<fs::path>& folder, const std::string& id) {
  if (!folder || !fs::is_directory(*folder)) return {};
  return first_of(*folder, {id, id + ".yml", id + ".yaml", id + ".json"});
}

class CellReader {
 public:
  CellReader(const fs::path& folder, std::vector<std::string>& warnings)
      : folder_(folder),
        warnings_(warnings),
        strategies_(first_of(folder, {"strategies", "strategy"})),
        runtimes_(first_of(folder, {"runtime", "runtimes"})),
        specs_(first_of(folder, {"resource_spec", "resource_spec.yml", "resource_spec.yaml"})) {}

  [[nodiscard]] bool is_cell() const { return strategies_ && runtimes_; }

  std::vector<DataCell> read() {
    graph_ = graph();
    for (const fs::path& file : sorted_entries(*strategies_)) {
      const std::string extension = file.extension().string();
      const bool named = extension == ".yml" || extension == ".yaml";
      const std::string id = (named ? file.stem() : file.filename()).string();
      try {
        add(id, file);
      } catch (const Error& error) {
        warnings_.push_back(error.what());
      }
    }
    for (std::size_t i = 1; i < cells_.size(); ++i) {
      cells_[i].cluster += "#" + std::to_string(i + 1);
    }
    return std::move(cells_);
  }

 private:
  [[nodiscard]] std::shared_ptr<const ir::Graph> graph() const {
    const auto found = first_of(folder_, {kGraph});
    const fs::path path = found ? *found : folder_.parent_path() / "graph_item";
    return std::make_shared<const ir::Graph>(load_graph(path.string()));
  }

  void add(const std::string& id, const fs::path& file) {
    const auto runtimes = file_of(runtimes_, id);
    if (!runtimes) {
      warnings_.push_back(file.string() + ": no runtime of this name; the point is left out");
      return;
    }
    DataPoint point{id, strategy::read_strategy(file.string(), &warnings_),
                    parse_runtimes(read_file(runtimes->string()), runtimes->string())};
    DataCell& cell = cell_of(machines_of(id));
    strategy::check(point.strategy, *graph_, cell.machines, file.string());
    cell.points.push_back(std::move(point));
  }

  // Its own specification, or the one that all share.
  [[nodiscard]] cluster::Cluster machines_of(const std::string& id) const {
    std::optional<fs::path> file = file_of(specs_, id);
    if (!file && specs_ && fs::is_regular_file(*specs_)) file = specs_;
    if (!file && specs_ && fs::is_directory(*specs_)) {
      const std::vector<fs::path> all = sorted_entries(*specs_);
      if (all.size() == 1) file = all.front();
    }
    if (!file) {
      fail(ErrorCode::kUsage,
           "{}: no resource_spec for '{}'. Add resource_spec.yml, a cluster file.",
           folder_.string(), id);
    }
    return cluster::parse_resource_spec(read_file(file->string()), file->string());
  }

  DataCell& cell_of(cluster::Cluster machines) {
    const Digest digest = cluster::shape_digest(machines);
    for (DataCell& cell : cells_) {
      if (cluster::shape_digest(cell.machines) == digest) return cell;
    }
    cells_.push_back({folder_.parent_path().filename().string(),
                      folder_.filename().string(),
                      graph_,
                      std::move(machines),
                      {}});
    return cells_.back();
  }

  fs::path folder_;
  std::vector<std::string>& warnings_;
  std::optional<fs::path> strategies_;
  std::optional<fs::path> runtimes_;
  std::optional<fs::path> specs_;
  std::shared_ptr<const ir::Graph> graph_;
  std::vector<DataCell> cells_;
};

// What AutoDist's graph_item says of a graph: its variables and their gradients.
ir::GraphItem item_of(const ir::Graph& graph) {
  ir::GraphItem item;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::Variable& variable = graph.variables[i];
    ir::add_variable(item, {variable.name, graph.value(variable.value).type.dtype,
                            ir::shape_of(graph, ir::VariableId(i)), true});
    if (!variable.gradient) continue;
    const std::string gradient = "gradients/" + variable.name;
    if (variable.sparse_gradient) {
      item.gradients.push_back(
          {{gradient + "/indices:0", gradient + "/values:0", gradient + "/dense_shape:0"},
           variable.name});
    } else {
      item.gradients.push_back({{gradient + ":0"}, variable.name});
    }
  }
  return item;
}

fs::path folder_of(const std::string& folder, const DataCell& cell) {
  return fs::path(folder) / cell.model / cell.cluster;
}

}  // namespace

std::vector<DataCell> read_data_set(const std::string& folder, std::vector<std::string>& warnings) {
  if (!fs::is_directory(folder)) {
    fail(ErrorCode::kUsage,
         "data set: '{}' is no folder of MODEL/CLUSTER/strategies/ID. `autodist dataset record` "
         "makes one.",
         folder);
  }
  std::vector<DataCell> cells;
  for (const fs::path& model : sorted_entries(folder)) {
    if (!fs::is_directory(model)) continue;
    for (const fs::path& each : sorted_entries(model)) {
      CellReader reader(each, warnings);
      if (!fs::is_directory(each) || !reader.is_cell()) continue;
      try {
        for (DataCell& cell : reader.read()) cells.push_back(std::move(cell));
      } catch (const Error& error) {  // of an older version's graph, say; the other cells are sound
        warnings.push_back(fmt::format("{}: passed over: {}", each.string(), error.what()));
      }
    }
  }
  if (cells.empty()) {
    fail(ErrorCode::kUsage,
         "data set: '{}' holds no point: MODEL/CLUSTER/strategies/ID expected. `autodist dataset "
         "record` writes some.",
         folder);
  }
  return cells;
}

void write_cell(const std::string& folder, const DataCell& cell) {
  const fs::path path = folder_of(folder, cell);
  std::error_code problem;
  for (const char* part : {"strategies", "runtime"}) {
    fs::create_directories(path / part, problem);
    if (!problem) continue;
    fail(ErrorCode::kEnvironment, "data set: '{}' cannot be made: {}. Name another folder.",
         (path / part).string(), problem.message());
  }
  cluster::Cluster machines = cell.machines;
  machines.ssh.clear();
  for (cluster::Node& node : machines.nodes) node.ssh_config.clear();
  write_file_atomically((path / "resource_spec.yml").string(), cluster::to_yaml(machines));
  ir::write_graph((path / kGraph).string(), *cell.graph);
  const fs::path item = path.parent_path() / "graph_item";
  if (!fs::exists(item)) ir::write_graph_item(item.string(), item_of(*cell.graph));
}

void write_point(const std::string& folder, const DataCell& cell,
                 const strategy::Strategy& strategy, const Runtimes& runtimes) {
  const fs::path path = folder_of(folder, cell);
  write_file_atomically((path / "strategies" / strategy.id).string(),
                        strategy::serialize(strategy));
  write_file_atomically((path / "runtime" / (strategy.id + ".yml")).string(), to_yaml(runtimes));
}

}  // namespace autodist::planning
