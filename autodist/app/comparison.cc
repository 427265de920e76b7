#include "autodist/app/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "autodist/base/error.h"
#include "autodist/report/alike_rows.h"
#include "autodist/report/fitted_table.h"

namespace autodist::app {
namespace {

using nlohmann::ordered_json;

using Steps = std::set<std::pair<std::uint32_t, std::uint64_t>>;  // rank and step

Steps computed(const program::Trace& trace) {
  Steps steps;
  for (const program::TraceRow& row : trace.rows) {
    if (row.activity == program::Activity::kCompute) steps.emplace(row.rank.value, row.step);
  }
  return steps;
}

// Without those that no other comes before, where that leaves some.
Steps settled(const Steps& all) {
  Steps later;
  for (const auto& [rank, step] : all) {
    if (step > 0 && all.count({rank, step - 1}) > 0) later.emplace(rank, step);
  }
  return later.empty() ? all : later;
}

std::set<std::uint32_t> ranks_of(const Steps& steps) {
  std::set<std::uint32_t> ranks;
  for (const auto& each : steps) ranks.insert(each.first);
  return ranks;
}

Steps at_ranks_of(const Steps& other, Steps steps) {
  const std::set<std::uint32_t> ranks = ranks_of(other);
  std::erase_if(steps, [&](const auto& each) { return ranks.count(each.first) == 0; });
  return steps;
}

// Of ranks that both have the steps that both have; where there are none (a prediction's first
// steps, a training's last), each its own.
std::pair<Steps, Steps> compared_steps(const program::Trace& predicted,
                                       const program::Trace& measured) {
  const Steps one = computed(predicted);
  const Steps other = computed(measured);
  Steps both;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(),
                        std::inserter(both, both.end()));
  if (!both.empty()) return {settled(both), settled(both)};
  return {settled(at_ranks_of(other, one)), settled(at_ranks_of(one, other))};
}

struct Sums {
  std::map<std::string, double> phases;
  std::map<std::string, double> variables;
  std::map<std::pair<std::uint32_t, std::uint64_t>, double> ends;  // of the last op
  std::map<std::pair<std::uint32_t, std::uint64_t>, double> begins;
};

Sums sums_of(const program::Trace& trace, const Steps& steps) {
  Sums sums;
  const auto count = static_cast<double>(steps.size());
  for (const program::TraceRow& row : trace.rows) {
    const std::pair key(row.rank.value, row.step);
    if (row.activity == program::Activity::kCompute) {
      double& end = sums.ends[key];
      end = std::max(end, row.end.value);
      const auto [begin, is_new] = sums.begins.emplace(key, row.start.value);
      if (!is_new) begin->second = std::min(begin->second, row.start.value);
    }
    if (steps.count(key) == 0) continue;
    const double seconds = (row.end - row.start).value / count;
    sums.phases[name_of(row.activity)] += seconds;
    const bool of_variable =
        row.activity == program::Activity::kGate || row.activity == program::Activity::kWire;
    if (of_variable) sums.variables[row.name] += seconds;
  }
  return sums;
}

// Mean over the steps of end - end of the one before; of a lone first step its own length.
double mean_step(const Sums& sums, const Steps& steps) {
  double sum = 0;
  for (const auto& key : steps) {
    const auto before = sums.ends.find({key.first, key.second - 1});
    const bool has_one = key.second > 0 && before != sums.ends.end();
    sum += sums.ends.at(key) - (has_one ? before->second : sums.begins.at(key));
  }
  return sum / static_cast<double>(steps.size());
}

std::vector<Compared> joined(const std::map<std::string, double>& predicted,
                             const std::map<std::string, double>& measured) {
  std::map<std::string, Compared> all;
  for (const auto& [name, seconds] : predicted) all[name].predicted = Seconds(seconds);
  for (const auto& [name, seconds] : measured) all[name].measured = Seconds(seconds);
  std::vector<Compared> rows;
  for (auto& [name, row] : all) {
    row.name = name;
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::string> row_of(const Compared& compared) {
  return {compared.name, to_string(compared.predicted), to_string(compared.measured),
          fmt::format("{:+.1f} %", 100 * compared.error())};
}

ordered_json json_of(const Compared& row) {
  return {{"name", row.name},
          {"predicted_seconds", row.predicted.value},
          {"measured_seconds", row.measured.value},
          {"error", row.error()}};
}

ordered_json named(const std::string& graph) {
  return graph.empty() ? ordered_json() : ordered_json(graph);
}

// The trace's events as those of processes of their own, from the moment 0 on.
void append(program::Trace trace, const char* which, std::uint32_t offset, ordered_json& events) {
  Seconds first = trace.rows.front().start;
  for (const program::TraceRow& row : trace.rows) first = std::min(first, row.start);
  for (program::TraceRow& row : trace.rows) {
    row.start -= first;
    row.end -= first;
  }
  const ordered_json written = ordered_json::parse(program::to_chrome_json(trace));
  for (ordered_json event : written.at("traceEvents")) {
    const std::uint32_t process = 2 * event.at("pid").get<std::uint32_t>() + offset;
    event["pid"] = process;
    // Of arrows and of what waits: the same in both traces.
    if (event.contains("id")) event["id"] = fmt::format("{} {}", which, event["id"].dump());
    if (event.at("name") == "process_name") {
      ordered_json& name = event["args"]["name"];
      name = name.get<std::string>() + " " + which;
      events.push_back({{"name", "process_sort_index"},
                        {"ph", "M"},
                        {"pid", process},
                        {"args", {{"sort_index", process}}}});
    }
    events.push_back(std::move(event));
  }
}

}  // namespace

Comparison compare(const program::Trace& predicted, const program::Trace& measured) {
  const auto [of_predicted, of_measured] = compared_steps(predicted, measured);
  if (of_predicted.empty()) {
    fail(ErrorCode::kUsage,
         "compare: the traces have no rank in common. Simulate on the cluster that was measured.");
  }
  const Sums a = sums_of(predicted, of_predicted);
  const Sums b = sums_of(measured, of_measured);
  Comparison comparison;
  comparison.ranks_predicted = ranks_of(computed(predicted)).size();
  comparison.ranks_measured = ranks_of(computed(measured)).size();
  comparison.graph_predicted = predicted.graph;
  comparison.graph_measured = measured.graph;
  comparison.step = {"step", Seconds(mean_step(a, of_predicted)),
                     Seconds(mean_step(b, of_measured))};
  comparison.phases = joined(a.phases, b.phases);
  comparison.variables = joined(a.variables, b.variables);
  std::stable_sort(comparison.variables.begin(), comparison.variables.end(),
                   [](const Compared& x, const Compared& y) {
                     return std::abs((x.predicted - x.measured).value) >
                            std::abs((y.predicted - y.measured).value);
                   });
  return comparison;
}

std::string of_other_models(const std::string& one, const std::string& one_graph,
                            const std::string& other, const std::string& other_graph) {
  if (one_graph.empty() || other_graph.empty() || one_graph == other_graph) return "";
  return fmt::format("of other models: {} is of {}, {} is of {}", one, one_graph, other,
                     other_graph);
}

std::string comparison_table(const Comparison& comparison, std::size_t most, std::size_t columns) {
  std::vector<std::vector<std::string>> rows{
      {"per step and rank", "predicted", "measured", "error"}};
  const auto add_title = [&](const char* title) {
    for (const char* name : {"", title}) rows.push_back({name, "", "", ""});
  };
  rows.push_back(row_of(comparison.step));
  add_title("phases");
  for (const Compared& each : comparison.phases) rows.push_back(row_of(each));
  add_title("variables (waiting + wire)");
  report::AlikeRows variables(most);
  for (const Compared& each : comparison.variables) variables.add(row_of(each));
  for (auto& row : variables.shown()) rows.push_back(std::move(row));
  std::string text = report::fitted_table(std::move(rows), {1, 2, 3}, columns);
  if (comparison.ranks_predicted != comparison.ranks_measured) {
    text += fmt::format(
        "of other jobs: the prediction has {} ranks, the measurement {}; those that both have are "
        "compared\n",
        comparison.ranks_predicted, comparison.ranks_measured);
  }
  const std::string models = of_other_models("the prediction", comparison.graph_predicted,
                                             "the measurement", comparison.graph_measured);
  if (!models.empty()) text += models + "\n";
  if (variables.hidden() > 0) {
    text += fmt::format("… and {} that differ by less (--all shows them)\n", variables.hidden());
  }
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  ordered_json json{{"ranks_predicted", comparison.ranks_predicted},
                    {"ranks_measured", comparison.ranks_measured},
                    {"graph_predicted", named(comparison.graph_predicted)},
                    {"graph_measured", named(comparison.graph_measured)},
                    {"step_seconds_predicted", comparison.step.predicted.value},
                    {"step_seconds_measured", comparison.step.measured.value},
                    {"step_error", comparison.step.error()}};
  json["phases"] = ordered_json::array();
  for (const Compared& row : comparison.phases) json["phases"].push_back(json_of(row));
  json["variables"] = ordered_json::array();
  for (const Compared& row : comparison.variables) json["variables"].push_back(json_of(row));
  return json.dump();
}

std::string side_by_side(const program::Trace& predicted, const program::Trace& measured) {
  ordered_json events = ordered_json::array();
  append(predicted, "predicted", 0, events);
  append(measured, "measured", 1, events);
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace autodist::app
