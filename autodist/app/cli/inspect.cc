// `autodist inspect`: a graph, a graph_item, a strategy or a cluster, shown.

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/file_kind.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/graph_item.h"
#include "autodist/ir/graph_text.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/runtimes.h"
#include "autodist/report/graph_item.h"
#include "autodist/report/inspect.h"
#include "autodist/report/strategy.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {
namespace {

struct InspectArguments {
  std::string what;
  std::size_t top = 10;
  bool variables = false;
  bool ops = false;
  bool dot = false;
  bool text = false;
};

int inspect_graph(const ir::Graph& graph, const InspectArguments& arguments, Console& console) {
  if (console.json) {
    console.out << report::summary_json(graph) << "\n";
  } else if (arguments.dot) {
    console.out << report::to_dot(graph);
  } else if (arguments.ops) {
    console.out << ir::to_text(graph);
  } else if (arguments.variables) {
    console.out << report::variables_table(graph);
  } else {
    console.out << report::summary(graph) << "\n"
                << report::costs_table(graph, arguments.top, console.columns);
  }
  return 0;
}

int inspect_graph_item(const ir::GraphItem& item, const InspectArguments& arguments,
                       Console& console) {
  console.out << (console.json ? report::graph_item_json(item) + "\n"
                               : ir::to_text(item, arguments.top));
  return 0;
}

int inspect_strategy(const std::string& bytes, const InspectArguments& arguments,
                     Console& console) {
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = strategy::parse_strategy(bytes, arguments.what, &warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  console.out << (console.json     ? report::strategy_json(strategy) + "\n"
                  : arguments.text ? strategy::to_text(strategy)
                                   : report::strategy_table(strategy));
  return 0;
}

int inspect_cluster(const cluster::Cluster& cluster, Console& console) {
  std::vector<std::string> ranks;
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    ranks.push_back(cluster::device_name(cluster, place));
  }
  if (console.json) {
    return console.answer({{"kind", "cluster"},
                           {"nodes", cluster.nodes.size()},
                           {"ranks", ranks},
                           {"servers", cluster::servers_of(cluster)},
                           {"yaml", cluster::to_yaml(cluster)}});
  }
  console.out << cluster::to_yaml(cluster) << "\n";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    console.out << "# rank " << i << "  " << ranks[i] << "\n";
  }
  return 0;
}

int inspect_runtimes(const planning::Runtimes& runtimes, Console& console) {
  if (console.json) {
    std::vector<double> steps;
    for (const Seconds step : runtimes.steps) steps.push_back(step.value);
    return console.answer({{"kind", "runtimes"},
                           {"average_seconds", runtimes.average.value},
                           {"step_seconds", steps}});
  }
  console.out << fmt::format("measured        {} per step on average, {} steps\n",
                             to_string(runtimes.average), runtimes.steps.size());
  if (!runtimes.steps.empty()) {
    const auto [least, most] = std::minmax_element(runtimes.steps.begin(), runtimes.steps.end());
    console.out << fmt::format("{:<16}{} to {}\n", "from", to_string(*least), to_string(*most));
  }
  return 0;
}

// What an option asks of another kind of file would be left without effect.
void expect_views(const CLI::App& verb, FileKind kind) {
  static const std::map<FileKind, PartOptions> kViews{
      {FileKind::kGraph, {"a graph", {"--top", "--variables", "--ops", "--dot"}}},
      {FileKind::kGraphItem, {"a graph_item", {"--top"}}},
      {FileKind::kStrategy, {"a strategy", {"--text"}}},
      {FileKind::kCluster, {"a cluster", {}}},
      {FileKind::kRuntimes, {"step times", {}}},
      {FileKind::kTrace, {"a trace", {}}},
      {FileKind::kLog, {"a log", {}}},
      {FileKind::kPrediction, {"a prediction", {}}},
      {FileKind::kSweep, {"predictions", {}}}};
  std::vector<PartOptions> parts;
  for (const auto& [of, views] : kViews) parts.push_back(views);
  expect_of_part(verb, kViews.at(kind).part, parts);
}

int inspect(const InspectArguments& arguments, const CLI::App& verb, Console& console) {
  const std::string& what = arguments.what;
  if (!std::filesystem::exists(what)) {
    const bool is_cluster = what.rfind("local:", 0) == 0;
    expect_views(verb, is_cluster ? FileKind::kCluster : FileKind::kGraph);
    return is_cluster ? inspect_cluster(cluster::read_cluster(what), console)
                      : inspect_graph(planning::load_graph(what), arguments, console);
  }
  const std::string bytes = read_file(what);
  const FileKind kind = kind_of(bytes, what);
  expect_views(verb, kind);
  switch (kind) {
    case FileKind::kGraph:
      return inspect_graph(ir::deserialize(bytes, what), arguments, console);
    case FileKind::kGraphItem:
      return inspect_graph_item(ir::deserialize_graph_item(bytes, what), arguments, console);
    case FileKind::kStrategy:
      return inspect_strategy(bytes, arguments, console);
    case FileKind::kCluster:
      return inspect_cluster(cluster::parse_cluster(bytes, what), console);
    case FileKind::kRuntimes:
      return inspect_runtimes(planning::parse_runtimes(bytes, what), console);
    case FileKind::kTrace:
    case FileKind::kLog:
    case FileKind::kPrediction:
    case FileKind::kSweep:
      fail(ErrorCode::kUsage,
           "inspect: {} is of a run or a prediction. `autodist report {}` shows it.", what, what);
  }
  return 0;
}

// Each is the whole answer.
void expect_one_view(const CLI::App& verb, bool json) {
  std::vector<std::string> given;
  for (const char* view : {"--variables", "--ops", "--dot", "--text"}) {
    if (verb.count(view) > 0) given.emplace_back(view);
  }
  if (json) given.emplace_back("--json");
  if (given.size() < 2) return;
  fail(ErrorCode::kUsage, "inspect: {} are {} answers. Give one of them.",
       fmt::join(given, " and "), given.size());
}

}  // namespace

Action declare_inspect(CLI::App& verb) {
  auto arguments = std::make_shared<InspectArguments>();
  verb.add_option(
          "what", arguments->what,
          "a captured graph or the name of a shipped one, AutoDist's graph_item, a strategy "
          "(raw or text), a cluster file or local:N, AutoSync's step times; told by content")
      ->required();
  verb.add_option("--top", arguments->top,
                  "how many of the ops that cost most, or of the kinds of ops; 0: all");
  verb.add_flag("--variables", arguments->variables, "all variables of the graph");
  verb.add_flag("--ops", arguments->ops, "the whole graph as text");
  verb.add_flag("--dot", arguments->dot, "the ops as a DOT graph, for Graphviz");
  verb.add_flag("--text", arguments->text, "a strategy in protobuf's text format");
  return [arguments, &verb](Console& console) {
    expect_one_view(verb, console.json);
    return inspect(*arguments, verb, console);
  };
}

}  // namespace autodist::app
