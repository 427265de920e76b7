// The two JSON formats of readers.h.

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "autodist/base/error.h"
#include "autodist/base/json_complaint.h"
#include "autodist/search/placement/readers.h"

namespace autodist::search::placement {
namespace {

using Json = nlohmann::json;

// The library's own messages say what was wrong and where in the text.
template <typename Read>
TaskGraph guarded(const std::string& where, const Read& read) {
  try {
    TaskGraph graph = read();
    graph.name = stem_of(where);
    verify(graph, where);
    return graph;
  } catch (const Json::exception& error) {
    fail(ErrorCode::kUsage,
         "{}: a task graph in JSON expected, as published for throughput or by Placeto: {}. "
         "`autodist place --help` says what it reads.",
         where, json_complaint(error));
  }
}

// Flags are written 0, 1, false or true.
bool flag(const Json& node, const char* key, bool otherwise) {
  const auto found = node.find(key);
  if (found == node.end()) return otherwise;
  return found->is_boolean() ? found->get<bool>() : found->get<double>() != 0;
}

Task throughput_task(const Json& node) {
  Task task;
  task.name = node.contains("name") ? node.at("name").get<std::string>()
                                    : std::to_string(node.at("id").get<std::int64_t>());
  task.cost =
      flag(node, "supportedOnFpga", true) ? node.at("fpgaLatency").get<double>() : kNotSupported;
  task.cpu_cost = node.at("cpuLatency").get<double>();
  task.memory = node.value("size", 0.0);
  task.backward = flag(node, "isBackwardNode", false);
  task.outputs = {{0, 0.0}};
  return task;
}

// Colours of the file are any integers.
std::uint32_t colour_of(const Json& node,
                        std::unordered_map<std::int64_t, std::uint32_t>& colours) {
  const auto found = node.find("colorClass");
  if (found == node.end() || found->is_null()) return kNoColour;
  const auto next = static_cast<std::uint32_t>(colours.size());
  return colours.emplace(found->get<std::int64_t>(), next).first->second;
}

TaskGraph read_throughput(const Json& file, const std::string& where) {
  TaskGraph graph;
  graph.microseconds_per_unit = 1000;
  StatedDevices stated;
  stated.accelerators = file.at("maxFPGAs").get<std::uint32_t>();
  stated.cpus = file.value("maxCPUs", 0u);
  stated.memory = file.at("maxSizePerFPGA").get<double>();
  graph.stated = stated;
  std::unordered_map<std::int64_t, std::uint32_t> index;
  std::unordered_map<std::int64_t, std::uint32_t> colours;
  for (const Json& node : file.at("nodes")) {
    const auto id = node.at("id").get<std::int64_t>();
    if (!index.emplace(id, graph.tasks.size()).second) {
      fail(ErrorCode::kUsage, "{}: two nodes have the id {}. Give each its own.", where, id);
    }
    graph.tasks.push_back(throughput_task(node));
    graph.tasks.back().colour = colour_of(node, colours);
  }
  for (const Json& edge : file.at("edges")) {
    const auto end_of = [&](const char* key) {
      const auto found = index.find(edge.at(key).get<std::int64_t>());
      if (found == index.end()) {
        fail(ErrorCode::kUsage, "{}: an edge's {} is {}, which is no node. Name one of `nodes`.",
             where, key, edge.at(key).dump());
      }
      return found->second;
    };
    const std::uint32_t from = end_of("sourceId");
    TaskOutput& output = graph.tasks[from].outputs.front();
    output.bytes = std::max(output.bytes, edge.value("size", 0.0));
    output.transfer = std::max(*output.transfer, edge.at("cost").get<double>());
    graph.tasks[end_of("destId")].inputs.push_back({TaskId(from), 0});
  }
  return graph;
}

TaskInput placeto_input(const std::string& text,
                        const std::unordered_map<std::string, std::uint32_t>& index,
                        const std::string& where) {
  TaskInput input;
  const bool only_waits = text.starts_with('^');
  std::string name = only_waits ? text.substr(1) : text;
  const std::size_t colon = name.rfind(':');
  if (colon != std::string::npos) {
    const std::string digits = name.substr(colon + 1);
    if (only_waits || digits.empty() || digits.size() > 6 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      fail(ErrorCode::kUsage, "{}: input '{}', expected NAME, NAME:OUTPUT or ^NAME", where, text);
    }
    input.output = static_cast<std::uint32_t>(std::stoul(digits));
    name.erase(colon);
  }
  const auto found = index.find(name);
  if (found == index.end()) {
    fail(ErrorCode::kUsage, "{}: input '{}' is no node. Name one of graph_def.", where, text);
  }
  input.task = TaskId(found->second);
  return input;
}

TaskGraph read_placeto(const Json& file, const std::string& where) {
  TaskGraph graph;
  std::unordered_map<std::string, std::uint32_t> index;
  const Json& nodes = file.at("graph_def");
  for (const Json& node : nodes) {
    Task task;
    task.name = node.at("name").get<std::string>();
    task.cost = file.at("cost_us").at(task.name).get<double>();
    for (const Json& bytes : file.at("output_bytes").at(task.name)) {
      task.outputs.push_back({bytes.get<double>(), std::nullopt});
    }
    index.emplace(task.name, graph.tasks.size());
    graph.tasks.push_back(std::move(task));
  }
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    for (const Json& input : nodes[i].at("input")) {
      graph.tasks[i].inputs.push_back(placeto_input(input.get<std::string>(), index, where));
    }
  }
  return graph;
}

}  // namespace

TaskGraph parse_throughput(const std::string& text, const std::string& where) {
  return guarded(where, [&] { return read_throughput(Json::parse(text), where); });
}

TaskGraph parse_placeto_json(const std::string& text, const std::string& where) {
  return guarded(where, [&] { return read_placeto(Json::parse(text), where); });
}

}  // namespace autodist::search::placement
