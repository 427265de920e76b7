// `autodist inspect`: a graph, a strategy or a cluster, shown.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/archive.h"
#include "autodist/app/cli/light_verbs.h"
#include "autodist/base/error.h"
#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph_text.h"
#include "autodist/report/inspect.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {
namespace {

struct InspectArguments {
  std::string what;
  std::size_t top = 10;
  bool variables = false;
  bool ops = false;
  bool dot = false;
};

int inspect_graph(const InspectArguments& arguments, Console& console) {
  const ir::Graph graph = load_graph(arguments.what);
  if (console.json) {
    console.out << report::summary_json(graph) << "\n";
  } else if (arguments.dot) {
    console.out << report::to_dot(graph);
  } else if (arguments.ops) {
    console.out << ir::to_text(graph);
  } else if (arguments.variables) {
    console.out << report::variables_table(graph);
  } else {
    console.out << report::summary(graph) << "\n" << report::costs_table(graph, arguments.top);
  }
  return 0;
}

int inspect_strategy(const std::string& path, Console& console) {
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = strategy::read_strategy(path, &warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  if (console.json) {
    console.out << nlohmann::ordered_json{{"id", strategy.id},
                                          {"variables", strategy.nodes.size()},
                                          {"replicas", strategy.replicas},
                                          {"text", strategy::to_text(strategy)}}
                       .dump()
                << "\n";
  } else {
    console.out << strategy::to_text(strategy);
  }
  return 0;
}

int inspect_cluster(const std::string& path, Console& console) {
  const cluster::Cluster cluster = cluster::read_cluster(path);
  std::vector<std::string> ranks;
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    ranks.push_back(cluster::device_name(cluster, place));
  }
  if (console.json) {
    console.out << nlohmann::ordered_json{{"nodes", cluster.nodes.size()},
                                          {"ranks", ranks},
                                          {"servers", cluster::servers_of(cluster)},
                                          {"yaml", cluster::to_yaml(cluster)}}
                       .dump()
                << "\n";
  } else {
    console.out << cluster::to_yaml(cluster);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      console.out << "# rank " << i << "  " << ranks[i] << "\n";
    }
  }
  return 0;
}

int inspect(const InspectArguments& arguments, Console& console) {
  const std::string extension = std::filesystem::path(arguments.what).extension();
  if (extension == ".strategy" || extension == ".pbtxt") {
    return inspect_strategy(arguments.what, console);
  }
  if (extension == ".yml" || extension == ".yaml" || arguments.what.rfind("local:", 0) == 0) {
    return inspect_cluster(arguments.what, console);
  }
  return inspect_graph(arguments, console);
}

}  // namespace

Action declare_inspect(CLI::App& verb) {
  auto arguments = std::make_shared<InspectArguments>();
  verb.add_option("what", arguments->what,
                  "a graph file or the name of a shipped graph; a .strategy or .pbtxt file; a .yml "
                  "cluster or local:N")
      ->required();
  verb.add_option("--top", arguments->top, "how many of the dearest ops");
  verb.add_flag("--variables", arguments->variables, "all variables of the graph");
  verb.add_flag("--ops", arguments->ops, "the whole graph as text");
  verb.add_flag("--dot", arguments->dot, "the ops as a DOT graph, for Graphviz");
  return [arguments](Console& console) { return inspect(*arguments, console); };
}

}  // namespace autodist::app
