#include "autodist/report/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autodist/ir/text.h"
#include "autodist/program/route.h"
#include "autodist/program/slice_size.h"
#include "autodist/program/words.h"
#include "autodist/report/alike_rows.h"
#include "autodist/report/fitted_table.h"
#include "autodist/report/strategy.h"

namespace autodist::report {
namespace {

// What a plan adds to a variable's synchronizer.
std::string added_words(const program::Program& program, ir::VariableId id) {
  const std::string words = program::short_words(program.exchange(id));
  return words.empty() ? "" : ", " + words;
}

}  // namespace

std::vector<std::size_t> by_size(const ir::Graph& graph) {
  std::vector<std::size_t> order(graph.variables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ir::bytes_of(graph, ir::VariableId(a)) > ir::bytes_of(graph, ir::VariableId(b));
  });
  return order;
}

Bytes variable_bytes(const ir::Graph& graph) {
  Bytes total;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    total += ir::bytes_of(graph, ir::VariableId(i));
  }
  return total;
}

std::map<std::string, const strategy::NodeConfig*> nodes_by_variable(
    const strategy::Strategy& strategy) {
  std::map<std::string, const strategy::NodeConfig*> nodes;
  for (const strategy::NodeConfig& node : strategy.nodes) {
    nodes[strategy::variable_name(node.name)] = &node;
  }
  return nodes;
}

std::vector<RankTraffic> traffic_of(const program::Program& program, std::int64_t batch) {
  if (batch == 0) batch = program.graph->example_batch;
  std::vector<RankTraffic> traffic(program.ranks.size());
  const auto carry = [&](program::Rank from, program::Rank to, Bytes bytes) {
    if (from == to) return;
    traffic[from.value].sent += bytes;
    traffic[to.value].received += bytes;
  };
  for (const program::Slice& slice : program.slices) {
    const program::Loads loads = loads_of(program, slice, batch);
    const Bytes to_owner = loads.contribution + loads.asked;
    const Bytes to_member = loads.result + loads.fetched;
    traffic[slice.owner.value].owned += program::bytes_of(slice);
    const std::vector<program::RouteStop> stops = program::stops_of(program, slice);
    for (std::size_t i = 0; i < program.ranks.size(); ++i) {
      const program::Rank rank(i);
      const program::RouteStop& stop = stops[i];
      for (const program::Rank to : stop.contributes) carry(rank, to, to_owner);
      if (stop.onward) carry(rank, *stop.onward, to_owner);
      for (const program::Rank to : stop.returns) carry(rank, to, to_member);
    }
  }
  for (const program::Collective& collective : program.collectives) {
    const program::LibraryLoads loads = loads_of(*program.graph, collective);
    const Bytes size((loads.first + loads.second) *
                     static_cast<std::int64_t>(size_of(collective.dtype)));
    const auto members = static_cast<std::int64_t>(collective.members.size());
    const Bytes each(2 * size.value * (members - 1) / members);
    for (program::Rank member : collective.members) {
      traffic[member.value].sent += each;
      traffic[member.value].received += each;
    }
  }
  return traffic;
}

std::string not_reproducible(const program::Program& program) {
  if (program.reproducible()) return "";
  if (!program.in_step()) {
    return "not reproducible: what a stale or asynchronous variable holds depends on the clock";
  }
  return "not reproducible: a library's all-reduce adds gradients in an order of its own";
}

namespace {

// "10.0.0.1:" where all ranks are there.
std::string common_address(const program::Program& program) {
  const std::string& first = program.ranks.front().node;
  const bool is_common = std::all_of(program.ranks.begin(), program.ranks.end(),
                                     [&](const auto& rank) { return rank.node == first; });
  return is_common ? first + ":" : "";
}

std::string without(std::string text, const std::string& part) {
  for (std::size_t at = 0; !part.empty() && (at = text.find(part, at)) != std::string::npos;) {
    text.erase(at, part.size());
  }
  return text;
}

std::string variables_table(const strategy::Strategy& strategy, const program::Program& program,
                            std::size_t most, std::size_t columns) {
  const ir::Graph& graph = *program.graph;
  const auto nodes = nodes_by_variable(strategy);
  const std::string address = common_address(program);
  AlikeRows alike(most);
  for (std::size_t index : by_size(graph)) {
    const ir::VariableId id(index);
    const auto node = nodes.find(graph.variable(id).name);
    const bool used = graph.variable(id).gradient.has_value();
    const std::string synchronised = !used ? "unused by the step"
                                     : node == nodes.end()
                                         ? "-"
                                         : describe(*node->second) + added_words(program, id);
    alike.add({graph.variable(id).name,
               fmt::format("[{}]", fmt::join(ir::shape_of(graph, id), ",")),
               to_string(ir::bytes_of(graph, id)), std::to_string(program.plan(id).slices.size()),
               without(synchronised, address)});
  }
  std::vector<std::vector<std::string>> rows = alike.shown();
  rows.insert(rows.begin(), {"variable", "shape", "size", "slices", "synchronised by"});
  const std::string more =
      alike.hidden() == 0
          ? ""
          : fmt::format("… and {} smaller ones (--all shows them)\n", alike.hidden());
  return fitted_table(std::move(rows), {2, 3}, columns) + more;
}

std::string ranks_table(const program::Program& program, bool each, std::size_t columns,
                        std::int64_t batch) {
  const std::string address = common_address(program);
  const std::vector<RankTraffic> traffic = traffic_of(program, batch);
  std::vector<std::string> devices;
  for (const program::RankInfo& rank : program.ranks) {
    devices.push_back(without(rank.device, address));
  }
  const auto cells_of = [&](std::size_t rank) {
    const RankTraffic& of = traffic[rank];
    return std::vector<std::string>{to_string(of.owned), to_string(of.sent),
                                    to_string(of.received)};
  };
  std::vector<std::vector<std::string>> rows = rank_rows(devices, cells_of, each);
  rows.insert(rows.begin(), {"rank, device", "owns", "sends", "receives"});
  return fitted_table(std::move(rows), {1, 2, 3}, columns);
}

}  // namespace

std::vector<std::vector<std::string>> rank_rows(
    const std::vector<std::string>& devices,
    const std::function<std::vector<std::string>(std::size_t)>& cells_of, bool each) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t first = 0, next = 0; first < devices.size(); first = next) {
    const std::vector<std::string> cells = cells_of(first);
    do {
      ++next;
    } while (!each && next < devices.size() && cells_of(next) == cells);
    const std::size_t last = next - 1;
    rows.push_back({first == last ? fmt::format("{}, {}", first, devices[first])
                                  : fmt::format("{}–{}, {} – {}", first, last, devices[first],
                                                devices[last])});
    rows.back().insert(rows.back().end(), cells.begin(), cells.end());
  }
  return rows;
}

std::string plan_table(const strategy::Strategy& strategy, const program::Program& program,
                       std::size_t most, std::size_t columns, std::int64_t batch) {
  const ir::Graph& graph = *program.graph;
  std::string text = variables_table(strategy, program, most, columns);
  text += fmt::format("\n{} variables, {}, in {} slices and {} library collectives on {} ranks\n",
                      graph.variables.size(), to_string(variable_bytes(graph)),
                      program.slices.size(), program.collectives.size(), program.ranks.size());
  if (!program.reproducible()) text += not_reproducible(program) + "\n";
  return text + ranks_table(program, most == 0, columns, batch);
}

nlohmann::ordered_json plan_json(const strategy::Strategy& strategy,
                                 const program::Program& program, std::int64_t batch) {
  const ir::Graph& graph = *program.graph;
  nlohmann::ordered_json json;
  json["strategy_id"] = strategy.id;
  json["program_digest"] = to_string(program::digest_of(program));
  json["reproducible"] = program.reproducible();
  json["ranks"] = nlohmann::ordered_json::array();
  const std::vector<RankTraffic> traffic = traffic_of(program, batch);
  for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
    json["ranks"].push_back({{"device", program.ranks[rank].device},
                             {"owned_bytes", traffic[rank].owned.value},
                             {"sent_bytes_per_step", traffic[rank].sent.value},
                             {"received_bytes_per_step", traffic[rank].received.value}});
  }
  const auto nodes = nodes_by_variable(strategy);
  json["variables"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    const auto node = nodes.find(graph.variable(id).name);
    nlohmann::ordered_json row{{"name", graph.variable(id).name},
                               {"shape", ir::shape_of(graph, id)},
                               {"bytes", ir::bytes_of(graph, id).value},
                               {"slices", program.plan(id).slices.size()}};
    if (node != nodes.end()) {
      row["synchronizer"] = describe(*node->second);
      const std::string rows = program::rows_name(program.exchange(id));
      if (!rows.empty()) row["rows"] = rows;
      if (node->second->needed) row["needed_seconds"] = node->second->needed->value;
    }
    json["variables"].push_back(std::move(row));
  }
  json["slices"] = program.slices.size();
  json["collectives"] = program.collectives.size();
  return json;
}

}  // namespace autodist::report
