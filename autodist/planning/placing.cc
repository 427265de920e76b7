#include "autodist/planning/placing.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/numbers.h"
#include "autodist/ir/history.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/defaults.h"
#include "autodist/report/fitted_table.h"
#include "autodist/search/placement/from_graph.h"
#include "autodist/search/placement/generators.h"
#include "autodist/search/placement/gzip.h"
#include "autodist/search/placement/placeto_simulator.h"
#include "autodist/search/placement/readers.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/device_table.h"
#include "autodist/sim/memory.h"

namespace autodist::planning {
namespace {

namespace placement = search::placement;

constexpr std::size_t kTextPrefix = 4096;

// Captured graphs are compressed; published ones are text.
bool is_published(const std::string& bytes) {
  return bytes.find('\0') >= std::min(bytes.size(), kTextPrefix);
}

// "FAMILY" or "FAMILY:SEED"
placement::TaskGraph generated(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return placement::generate(text, 0);
  const auto seed = as_number<std::uint64_t>(text.substr(colon + 1));
  if (!seed) {
    fail(ErrorCode::kUsage, "'generated:{}': the seed is no number, generated:FAMILY:SEED expected",
         text);
  }
  return placement::generate(text.substr(0, colon), *seed);
}

std::string unit_of(const placement::TaskGraph& graph, const placement::PlaceRequest& request) {
  if (request.objective == placement::Objective::kProcessors) return "";
  return graph.microseconds_per_unit == 1 ? " us" : " ms";
}

// Bytes for tensors.
double room_on(const cluster::Device& device, const cluster::DeviceFigures& known) {
  if (device.kind == cluster::DeviceKind::kCpu) return static_cast<double>(known.memory.value);
  const Bytes context = sim::context_bytes(sim::row_of(known));
  return static_cast<double>(sim::room_for_tensors(known.memory, context).value);
}

}  // namespace

placement::TaskGraph load_task_graph(const std::string& name_or_path) {
  if (std::filesystem::exists(name_or_path)) {
    std::string bytes = read_file(name_or_path);
    if (placement::is_gzip(bytes)) bytes = placement::gunzip(bytes, name_or_path);
    if (is_published(bytes)) return placement::parse_task_graph(bytes, name_or_path);
  }
  const std::string prefix = "generated:";
  if (name_or_path.rfind(prefix, 0) == 0) return generated(name_or_path.substr(prefix.size()));
  const ir::Graph graph = load_graph(name_or_path);
  return placement::task_graph_of(graph, graph.example_batch);
}

bool is_captured(const std::string& name_or_path) {
  if (!std::filesystem::exists(name_or_path)) return name_or_path.rfind("generated:", 0) != 0;
  const std::string bytes = read_file(name_or_path);
  return !placement::is_gzip(bytes) && !is_published(bytes);
}

std::vector<NamedDevice> devices_of_cluster(const cluster::Cluster& cluster,
                                            const placement::TaskGraph& graph) {
  const double unit = graph.microseconds_per_unit * 1e-6;  // seconds
  std::vector<NamedDevice> devices;
  double standard = 0;
  for (const cluster::Place& place : cluster::computing_ranks_of(cluster)) {
    const cluster::Node& node = cluster.nodes[place.node];
    NamedDevice device;
    device.name = cluster::device_name(cluster, place);
    const cluster::DeviceFigures known = sim::figures_of(place.device, device.name);
    if (standard == 0) standard = known.tflops;
    if (known.tflops > 0 && standard > 0) device.figures.speed = known.tflops / standard;
    if (known.memory.value > 0) device.figures.memory = room_on(place.device, known);
    device.figures.node = static_cast<std::uint32_t>(place.node);
    device.figures.bytes_per_unit = node.bandwidth_bytes_per_s * unit;
    device.figures.inside_bytes_per_unit = node.intra_node_bytes_per_s * unit;
    devices.push_back(std::move(device));
  }
  // Where all share one node, nothing crosses its card.
  const bool one_node = std::all_of(devices.begin(), devices.end(), [&](const NamedDevice& each) {
    return each.figures.node == devices.front().figures.node;
  });
  for (NamedDevice& device : devices) {
    if (one_node) device.figures.bytes_per_unit = device.figures.inside_bytes_per_unit;
  }
  return devices;
}

OnCluster on_cluster(const ir::Graph& graph, const cluster::Cluster& cluster) {
  OnCluster result{placement::task_graph_of(graph, graph.example_batch), {}};
  result.devices = devices_of_cluster(cluster, result.tasks);
  std::vector<cluster::DeviceFigures> known;
  for (const cluster::Place& place : cluster::computing_ranks_of(cluster)) {
    known.push_back(sim::figures_of(place.device, cluster::device_name(cluster, place)));
  }
  const auto standard = std::find_if(known.begin(), known.end(), sim::has_rates);
  if (standard == known.end()) return result;
  const double unit = result.tasks.microseconds_per_unit * 1e-6;
  const auto task_time = [&](const ir::Op& op, const cluster::DeviceFigures& figures) {
    const Seconds time = sim::roofline(op, graph.example_batch, figures.tflops,
                                       figures.memory_bandwidth_bytes_per_s);
    return time.value / unit;
  };
  const auto whole = [&](const cluster::DeviceFigures& figures) {
    double sum = 0;
    for (const ir::Op& op : graph.ops) sum += task_time(op, figures);
    return sum;
  };
  double measured = 0;
  for (const placement::Task& task : result.tasks.tasks) measured += task.cost;
  const double reference = whole(*standard);
  for (std::size_t i = 0; i < known.size(); ++i) {
    double& speed = result.devices[i].figures.speed;
    if (sim::has_rates(known[i])) {
      speed = reference / whole(known[i]);
    } else if (known[i].tflops == 0 && measured > 0) {
      speed = reference / measured;
    }
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    result.tasks.tasks[i].cost = task_time(graph.ops[i], *standard);
  }
  return result;
}

std::vector<NamedDevice> devices_by_count(std::size_t count, const placement::TaskGraph& graph) {
  placement::StatedDevices stated = graph.stated.value_or(placement::StatedDevices{});
  if (count > 0) stated.accelerators = static_cast<std::uint32_t>(count);
  if (stated.accelerators == 0) {
    fail(ErrorCode::kUsage,
         "{}: states no devices. Use --devices N, or --cluster with a cluster file.", graph.name);
  }
  constexpr std::uint32_t kMostDevices = 4096;
  const std::uint64_t wanted = std::uint64_t{stated.accelerators} + stated.cpus;
  if (wanted > kMostDevices) {
    fail(ErrorCode::kUsage, "{} devices, at most {} expected. Use --devices with less.", wanted,
         kMostDevices);
  }
  std::vector<NamedDevice> devices;
  placement::ListDevice figures;
  figures.bytes_per_unit = placement::kPlacetoBytesPerUs * graph.microseconds_per_unit;
  // Files that state their devices have no pauses.
  figures.after_op = graph.stated ? 0 : placement::kPlacetoAfterOp;
  figures.after_transfer = graph.stated ? 0 : placement::kPlacetoAfterTransfer;
  if (stated.memory > 0) figures.memory = stated.memory;
  for (std::uint32_t i = 0; i < stated.accelerators; ++i) {
    devices.push_back({fmt::format("accelerator {}", i), figures});
  }
  figures.cpu = true;
  figures.memory = placement::kNotSupported;
  for (std::uint32_t i = 0; i < stated.cpus; ++i) {
    devices.push_back({fmt::format("cpu {}", i), figures});
  }
  return devices;
}

const char* name_of(placement::Objective objective) {
  return objective == placement::Objective::kThroughput ? "throughput" : "makespan";
}

Seconds parse_duration(const std::string& text) {
  if (const auto time = as_duration(text)) return *time;
  const auto count = as_number<std::uint64_t>(text);
  fail(ErrorCode::kUsage,
       "--budget '{}': a time above 0 with its unit expected, such as 10s, 500ms or 2m; a count is "
       "--evaluations{}",
       text, count.value_or(0) > 0 ? fmt::format(" {}", *count) : "");
}

std::string placement_table(const placement::TaskGraph& graph,
                            const std::vector<NamedDevice>& devices,
                            const placement::PlaceRequest& request,
                            const placement::PlaceResult& result, std::size_t columns) {
  const auto bytes = [](double value) {
    return to_string(Bytes(static_cast<std::int64_t>(value)));
  };
  std::vector<std::vector<std::string>> rows{
      {"device", "tasks", "work", "transfers", "load", "memory", "receives", "sends"}};
  const auto figure = [](double value) { return fmt::format("{:.3f}", value); };
  for (std::size_t i = 0; i < result.devices.size(); ++i) {
    const placement::DeviceLoad& row = result.devices[i];
    rows.push_back({devices[i].name, std::to_string(row.tasks), figure(row.work),
                    figure(row.transfers), figure(row.total()), bytes(row.memory),
                    bytes(row.bytes_in), bytes(row.bytes_out)});
  }
  std::string text = report::fitted_table(std::move(rows), {1, 2, 3, 4, 5, 6, 7}, columns);
  const std::string unit = unit_of(graph, request);
  if (!unit.empty()) text += fmt::format("work, transfers and load in{}\n", unit);
  const bool pipelined = request.objective == placement::Objective::kThroughput;
  const auto line = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  text += "\n";
  line(pipelined ? "largest load" : name_of(request.objective),
       fmt::format("{:.3f}{}", result.value, unit));
  line("bound", fmt::format("{:.3f}{}", result.bound, unit));
  line("gap",
       fmt::format("{:.2f} %{}", 100 * result.gap(), result.gap() <= 1e-9 ? ", optimal" : ""));
  line("found by", fmt::format("{}, {} evaluations", result.found_by, result.evaluations));
  return text;
}

std::string placement_json(const placement::TaskGraph& graph,
                           const std::vector<NamedDevice>& devices,
                           const placement::PlaceRequest& request,
                           const placement::PlaceResult& result, bool tasks) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (std::size_t i = 0; i < result.devices.size(); ++i) {
    const placement::DeviceLoad& row = result.devices[i];
    rows.push_back({{"name", devices[i].name},
                    {"tasks", row.tasks},
                    {"work", row.work},
                    {"transfers", row.transfers},
                    {"load", row.total()},
                    {"memory_bytes", row.memory},
                    {"received_bytes", row.bytes_in},
                    {"sent_bytes", row.bytes_out}});
  }
  Json object{{"kind", "placement"},
              {"graph", graph.name},
              {"objective", name_of(request.objective)},
              {"placer", request.placer},
              {"seed", request.seed},
              {"time", result.value},
              {"bound", result.bound},
              {"gap", result.gap()},
              {"found_by", result.found_by},
              {"evaluations", result.evaluations},
              {"reproducible", !result.stopped_by_clock},
              {"devices", std::move(rows)}};
  if (request.objective != placement::Objective::kProcessors) {
    object["microseconds_per_unit"] = graph.microseconds_per_unit;
  }
  if (tasks) {
    Json where = Json::object();
    for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
      where[graph.tasks[i].name] = result.placement[i];
    }
    object["placement"] = std::move(where);
  }
  return object.dump();
}

strategy::Strategy placement_strategy(const ir::Graph& graph, const cluster::Cluster& cluster,
                                      std::uint32_t replicas,
                                      const placement::PlaceResult& result) {
  strategy::Strategy strategy;
  strategy::Placement placed;
  for (const cluster::Place& place : cluster::computing_ranks_of(cluster)) {
    placed.devices.push_back(cluster::device_name(cluster, place));
  }
  placed.stages = static_cast<std::uint32_t>(placed.devices.size()) / replicas;
  const std::vector<std::uint32_t> stage_of(result.placement.begin(), result.placement.end());
  placed.scopes = strategy::scopes_of(graph, stage_of);
  const ir::History history(graph);
  for (const ir::Variable& variable : graph.variables) {
    std::optional<ir::OpId> user = variable.first_use;
    if (!user && variable.gradient) user = history.maker(*variable.gradient);
    strategy::NodeConfig node;
    node.name = strategy::node_name(variable.name);
    node.synchronizer = strategy::PsSynchronizer{placed.devices[user ? stage_of[user->value] : 0]};
    strategy.nodes.push_back(std::move(node));
  }
  strategy.replicas = placed.devices;
  strategy.placement = std::move(placed);
  set_id(strategy);
  strategy::check(strategy, graph, cluster, graph.name);
  return strategy;
}

std::string placement_dot(const placement::TaskGraph& graph, const placement::PlaceResult& result) {
  static const char* const kColours[] = {"lightblue", "palegreen",  "lightsalmon", "plum",
                                         "khaki",     "lightcyan",  "pink",        "wheat",
                                         "thistle",   "aquamarine", "gold",        "lavender"};
  const auto quoted = [](const std::string& name) { return nlohmann::json(name).dump(); };
  std::string text = "digraph placement {\n  node [shape=box, style=filled];\n";
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    text +=
        fmt::format("  {} [fillcolor={}, tooltip=\"device {}\"];\n", quoted(graph.tasks[i].name),
                    kColours[result.placement[i] % std::size(kColours)], result.placement[i]);
  }
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    for (const placement::TaskInput& input : graph.tasks[i].inputs) {
      const bool crosses = result.placement[input.task.value] != result.placement[i];
      text += fmt::format("  {} -> {}{};\n", quoted(graph.task(input.task).name),
                          quoted(graph.tasks[i].name), crosses ? " [style=bold]" : "");
    }
  }
  return text + "}\n";
}

}  // namespace autodist::planning
