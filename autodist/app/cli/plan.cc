// `autodist plan`: a strategy for a graph on a cluster, shown and written.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/archive.h"
#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/planning.h"
#include "autodist/app/prediction.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"
#include "autodist/passes/pipeline.h"
#include "autodist/report/plan.h"
#include "autodist/search/builders/builders.h"

namespace autodist::app {
namespace {

struct PlanArguments {
  std::string graph;
  std::string cluster = "local:2";
  std::string builder = kDefaultBuilder;
  std::string output;
  std::string dump_after;
  bool all = false;
  bool as_text = false;
  bool cpu_only = false;
};

std::string builder_help() {
  std::string text = "how, as NAME or NAME:key=value,…:";
  for (const search::Builder& builder : search::builders()) text += " " + builder.name;
  return text;
}

void check_pass_name(const std::string& name) {
  const std::vector<std::string> known = passes::pass_names();
  if (name.empty() || name == "all") return;
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  fail(ErrorCode::kUsage,
       "--dump-after: unknown pass '{}', one of {} or all expected. Nearest: '{}'.", name,
       fmt::join(known, ", "), nearest(name, known));
}

int plan(const PlanArguments& arguments, Console& console) {
  check_pass_name(arguments.dump_after);
  const auto graph = std::make_shared<const ir::Graph>(load_graph(arguments.graph));
  const cluster::Cluster cluster = cluster::read_cluster(arguments.cluster);
  const StrategyRequest request{arguments.builder, "", {}};
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = choose_strategy(request, *graph, cluster, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";

  passes::Options options;
  options.cpu_only = arguments.cpu_only;
  options.dump = [&](const std::string& pass, const std::string& text) {
    if (arguments.dump_after != pass && arguments.dump_after != "all") return;
    console.err << "# after " << pass << "\n" << text << "\n";
  };
  const ir::Program program =
      passes::rewrite(graph, strategy, cluster, options, source_of(request));

  if (!arguments.output.empty()) {
    write_file_atomically(arguments.output, arguments.as_text ? strategy::to_text(strategy)
                                                              : strategy::serialize(strategy));
  }
  const Predicted predicted = predict(program, cluster, arguments.cluster);
  if (console.json) {
    auto json = nlohmann::ordered_json::parse(report::plan_json(strategy, program));
    if (predicted.simulation) {
      json["prediction"] = nlohmann::ordered_json::parse(
          prediction_json(*predicted.simulation, program, predicted.costs));
    }
    console.out << json.dump() << "\n";
    return 0;
  }
  console.out << fmt::format("{} on {} by {}\n\n", graph->name, arguments.cluster,
                             arguments.builder)
              << (predicted.simulation
                      ? prediction_lines(*predicted.simulation, program, predicted.costs) + "\n"
                      : "")
              << report::plan_table(strategy, program, arguments.all ? 0 : 20);
  if (!arguments.output.empty()) console.out << "\nWritten to " << arguments.output << "\n";
  return 0;
}

}  // namespace

Action declare_plan(CLI::App& verb) {
  auto arguments = std::make_shared<PlanArguments>();
  verb.add_option("graph", arguments->graph,
                  "a captured graph, the name of a shipped one, or AutoDist's graph_item")
      ->required();
  verb.add_option("--cluster", arguments->cluster,
                  "resource specification, host file, or local:N (default local:2)");
  verb.add_option("--builder", arguments->builder, builder_help());
  verb.add_option("-o,--output", arguments->output, "write the strategy here");
  verb.add_flag("--text", arguments->as_text, "write it in protobuf's text format");
  verb.add_flag("--all", arguments->all, "show every variable");
  verb.add_option("--devices", arguments->cpu_only, "cpu: one CPU rank for each listed GPU")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, bool>{{"cpu", true}, {"as-listed", false}}));
  verb.add_option("--dump-after", arguments->dump_after,
                  "print the program after this pass (or all) to standard error");
  return [arguments](Console& console) { return plan(*arguments, console); };
}

}  // namespace autodist::app
