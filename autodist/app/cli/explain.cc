// `autodist explain`: why a plan is as it is, and what else was there.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/workload.h"
#include "autodist/app/stop_signal.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/encryption.h"
#include "autodist/planning/explanation.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/planning.h"

namespace autodist::app {
namespace {

struct ExplainArguments {
  std::string graph;
  std::string cluster = "local:2";
  planning::StrategyRequest strategy;
  SearchSettings search;
  bool all = false;
  bool cpu_only = false;
  Workload workload;
};

int explain_plan(const ExplainArguments& arguments, Console& console) {
  const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(arguments.graph));
  const cluster::Cluster cluster = cluster::read_cluster(arguments.cluster);
  planning::StrategyRequest chosen = arguments.strategy;
  chosen.calibration = sim::read_calibration(arguments.cluster, arguments.workload.calibration);
  chosen.cpu_only = arguments.cpu_only;
  put_workload(arguments.workload, cluster, arguments.cpu_only, chosen.costs, console);
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = planning::choose_strategy(chosen, *graph, cluster, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  SearchSettings settings = arguments.search;
  settings.stop = [&stop = watch_stop_signals()] { return stop.load(); };
  settings.calibration = chosen.calibration;
  // What jobs of this build can do.
  planning::SearchRequest request =
      planning::search_request(settings, arguments.cluster, AUTODIST_GLOO);
  request.passes = planning::declared_options(cluster, *graph, arguments.cpu_only);
  request.passes.encrypted = planning::encrypts(Encryption::kAuto, cluster);
  request.costs = chosen.costs;
  const planning::Explanation explanation = explain(graph, cluster, strategy, request);
  if (console.json) {
    nlohmann::ordered_json json = planning::explanation_json(explanation);
    name_calibration(arguments.cluster, arguments.workload, json);
    return console.answer(json);
  }
  console.out << title_of(graph->name, arguments.cluster,
                          search::shown_name(planning::source_of(arguments.strategy)),
                          arguments.workload)
              << planning::explanation_table(explanation, arguments.all ? 0 : 8);
  return 0;
}

}  // namespace

Action declare_explain(CLI::App& verb) {
  auto arguments = std::make_shared<ExplainArguments>();
  verb.add_option("graph", arguments->graph, "a captured graph, or the name of a shipped one")
      ->required();
  auto* file = verb.add_option("strategy", arguments->strategy.file, "a strategy file");
  declare_cluster(verb, arguments->cluster);
  verb.add_option("--builder", arguments->strategy.builder,
                  "in the place of a file: NAME or NAME:key=value,… (see plan)")
      ->excludes(file);
  verb.add_option("--budget", arguments->search.budget,
                  "for simulating the alternatives: a time (default 10s) or a number of them");
  verb.add_flag("--all", arguments->all, "explain every variable");
  declare_devices(verb, arguments->cpu_only);
  declare_workload(verb, arguments->workload);
  return [arguments](Console& console) { return explain_plan(*arguments, console); };
}

}  // namespace autodist::app
