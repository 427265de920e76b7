#include "autodist/report/html/plan_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "autodist/ir/graph_builder.h"
#include "autodist/ir/text.h"
#include "autodist/program/words.h"
#include "autodist/report/plan.h"
#include "autodist/report/strategy.h"

namespace autodist::report {
namespace {

using Json = nlohmann::ordered_json;

// "priority 3 of 14" from when the strategy says that variables are needed.
class Priorities {
 public:
  explicit Priorities(const strategy::Strategy* strategy) {
    if (strategy == nullptr) return;
    for (const strategy::NodeConfig& node : strategy->nodes) {
      if (node.needed) times_.insert(node.needed->value);
    }
  }
  std::string of(const strategy::NodeConfig& node) const {
    if (!node.needed) return "";
    const auto place = std::distance(times_.begin(), times_.lower_bound(node.needed->value)) + 1;
    return fmt::format(
        "The next step needs it {} after its start: {} of {} in the order of leaving.",
        to_string(*node.needed), place, times_.size());
  }

 private:
  std::set<double> times_;
};

// "rank 2", "ranks 0, 3", "9 ranks".
std::string ranks_text(const std::set<program::Rank>& ranks) {
  constexpr std::size_t kNamed = 6;
  if (ranks.size() > kNamed) return fmt::format("{} ranks", ranks.size());
  std::vector<std::string> names;
  for (const program::Rank rank : ranks) names.push_back(fmt::format("{}", rank));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

std::string slices_reason(const program::Program& program, ir::VariableId id) {
  const program::VariablePlan& plan = program.plan(id);
  if (plan.slices.empty()) return "";
  std::set<program::Rank> owners;
  std::size_t neighbours = 0;
  Bytes largest;
  for (const program::SliceId slice_id : plan.slices) {
    const program::Slice& slice = program.slice(slice_id);
    owners.insert(slice.owner);
    if (program::bytes_of(slice) > largest) largest = program::bytes_of(slice);
    std::set<ir::VariableId> others;
    for (const program::Piece& piece : slice.pieces)
      others.insert(program.shard(piece.shard).variable);
    neighbours = std::max(neighbours, others.size() - 1);
  }
  std::string text = "Owned by " + ranks_text(owners) + ".";
  if (plan.slices.size() > 1) {
    text += fmt::format(" In slices of at most {}: what is needed first may overtake.",
                        to_string(largest));
  } else if (neighbours > 0) {
    text += fmt::format(" Small: it shares a slice with {} neighbour{}.", neighbours,
                        neighbours == 1 ? "" : "s");
  }
  return text;
}

Json variable_row(const ir::Graph& graph, ir::VariableId id, const strategy::NodeConfig* node,
                  const program::Program* program, const Priorities& priorities) {
  const ir::Variable& variable = graph.variable(id);
  Json row{{"name", variable.name},
           {"shape", ir::shape_of(graph, id)},
           {"dtype", name_of(graph.value(variable.value).type.dtype)},
           {"bytes", ir::bytes_of(graph, id).value},
           {"choice", nullptr},
           {"slices", nullptr},
           {"why", ""}};
  if (program != nullptr) row["slices"] = program->plan(id).slices.size();
  if (!variable.gradient) {
    row["choice"] = "not synchronised";
    row["why"] = "The step does not train it.";
    return row;
  }
  if (node == nullptr) return row;
  row["choice"] = describe(*node);
  std::vector<std::string> why;
  if (program != nullptr) {
    why = {slices_reason(*program, id), program::reason(program->exchange(id))};
  }
  why.push_back(priorities.of(*node));
  std::erase(why, "");
  row["why"] = fmt::format("{}", fmt::join(why, " "));
  return row;
}

void add_next_best(const NextBestByName& next_best, const std::string& name, Json& row) {
  const auto found = next_best.find(name);
  if (found == next_best.end()) return;
  row["next_best"] = {{"choice", found->second.choice},
                      {"cost_seconds", found->second.cost.value},
                      {"why", found->second.why},
                      {"waited_seconds", found->second.waited.value}};
}

Json ranks_of(const program::Program& program, std::int64_t batch) {
  Json ranks = Json::array();
  const std::vector<RankTraffic> traffic = traffic_of(program, batch);
  for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
    ranks.push_back({{"device", program.ranks[rank].device},
                     {"computes", program.computes(program::Rank(rank))},
                     {"owned_bytes", traffic[rank].owned.value},
                     {"sent_bytes", traffic[rank].sent.value},
                     {"received_bytes", traffic[rank].received.value}});
  }
  return ranks;
}

Json alternatives_of(const std::vector<Alternative>& alternatives) {
  Json rows = Json::array();
  for (const Alternative& each : alternatives) {
    Json row{{"name", each.name},
             {"description", each.description},
             {"busiest_bytes", each.busiest.value},
             {"step_seconds", nullptr},
             {"peak_bytes", nullptr},
             {"remark", each.remark},
             {"chosen", each.chosen},
             {"refused", each.refused}};
    if (each.step) row["step_seconds"] = each.step->value;
    if (each.peak) row["peak_bytes"] = each.peak->value;
    rows.push_back(std::move(row));
  }
  return rows;
}

Json head_of(const strategy::Strategy* strategy) {
  Json json{{"strategy_id", nullptr}, {"replicas", nullptr}};
  if (strategy == nullptr) return json;
  json["strategy_id"] = strategy->id;
  json["replicas"] = strategy->replicas.size();
  return json;
}

}  // namespace

Bytes busiest_rank(const program::Program& program, std::int64_t batch) {
  Bytes most;
  for (const RankTraffic& each : traffic_of(program, batch)) {
    if (each.sent + each.received > most) most = each.sent + each.received;
  }
  return most;
}

nlohmann::ordered_json plan_section(const ir::Graph& graph, const strategy::Strategy* strategy,
                                    const program::Program* program,
                                    const std::vector<Alternative>& alternatives,
                                    const NextBestByName& next_best, std::size_t most,
                                    std::int64_t batch) {
  Json json = head_of(strategy);
  const auto nodes = strategy == nullptr ? std::map<std::string, const strategy::NodeConfig*>{}
                                         : nodes_by_variable(*strategy);
  const Priorities priorities(strategy);
  json["graph"] = graph.name;
  json["ops"] = graph.ops.size();
  json["precision"] = ir::precision_of(graph);
  json["sequence_length"] = ir::sequence_length(graph);
  json["example_batch_samples"] = graph.example_batch;
  json["peak_bytes"] = graph.peak_bytes.at(graph.example_batch);
  json["variable_count"] = graph.variables.size();
  json["variable_bytes"] = variable_bytes(graph).value;
  json["variables"] = Json::array();
  for (const std::size_t i : by_size(graph)) {
    if (json["variables"].size() == most) break;
    const ir::VariableId id(i);
    const std::string& name = graph.variable(id).name;
    const auto node = nodes.find(name);
    Json row =
        variable_row(graph, id, node == nodes.end() ? nullptr : node->second, program, priorities);
    add_next_best(next_best, name, row);
    json["variables"].push_back(std::move(row));
  }
  json["ranks"] = program == nullptr ? Json::array() : ranks_of(*program, batch);
  if (program != nullptr) {
    json["slices"] = program->slices.size();
    json["collectives"] = program->collectives.size();
    json["reproducible"] = program->reproducible();
    json["not_reproducible"] = not_reproducible(*program);
    json["program_digest"] = to_string(program::digest_of(*program));
  }
  json["alternatives"] = alternatives_of(alternatives);
  return json;
}

nlohmann::ordered_json plan_section(const strategy::Strategy& strategy, std::size_t most) {
  Json json = head_of(&strategy);
  const Priorities priorities(&strategy);
  json["variable_count"] = strategy.nodes.size();
  json["variables"] = Json::array();
  for (const strategy::NodeConfig& node : strategy.nodes) {
    if (json["variables"].size() == most) break;
    json["variables"].push_back({{"name", strategy::variable_name(node.name)},
                                 {"shape", nullptr},
                                 {"dtype", nullptr},
                                 {"bytes", nullptr},
                                 {"choice", describe(node)},
                                 {"slices", nullptr},
                                 {"why", priorities.of(node)}});
  }
  json["ranks"] = Json::array();
  json["alternatives"] = Json::array();
  return json;
}

}  // namespace autodist::report
