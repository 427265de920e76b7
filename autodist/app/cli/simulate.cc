// `autodist simulate`: what a step would take, on a cluster that need not exist.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/planning.h"
#include "autodist/planning/prediction.h"
#include "autodist/report/chakra.h"
#include "autodist/sim/simulator.h"
#include "autodist/sim/what_if.h"

namespace autodist::app {
namespace {

struct SimulateArguments {
  std::string graph;
  std::string cluster = "local:2";
  planning::StrategyRequest strategy;
  std::string what_if;
  std::string calibration;
  std::string trace;
  std::string chakra;
  std::int64_t micro_batches = 1;
  bool barrier = false;
  bool all = false;
  bool cpu_only = false;
};

// One file per rank, as other simulators expect them: step.0.et, step.1.et, …
void write_chakra(const std::string& folder, const program::Program& program,
                  const sim::CostModel& costs) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < program.ranks.size(); ++i) {
    const program::Rank rank(i);
    write_file_atomically(fmt::format("{}/step.{}.et", folder, i),
                          report::chakra_trace(program, rank, costs.device(rank).ops));
  }
}

int simulate(const SimulateArguments& arguments, Console& console) {
  const sim::WhatIf what_if = sim::parse_what_if(arguments.what_if);
  if (what_if.nodes != 0 && !arguments.strategy.file.empty()) {
    fail(ErrorCode::kUsage,
         "--what-if nodes={} with --strategy {}: a strategy names the devices that it was made "
         "for. Use --builder.",
         what_if.nodes, arguments.strategy.file);
  }
  const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(arguments.graph));
  const cluster::Cluster cluster = sim::changed(cluster::read_cluster(arguments.cluster), what_if);
  const sim::Calibration calibration =
      sim::read_calibration(arguments.cluster, arguments.calibration);
  planning::StrategyRequest request = arguments.strategy;
  request.calibration = calibration;
  request.cpu_only = arguments.cpu_only;
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = planning::choose_strategy(request, *graph, cluster, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";

  passes::Options options;
  options.cpu_only = arguments.cpu_only;
  options.micro_batches = arguments.micro_batches;
  options.verify_each = false;
  planning::tune_to(planning::declared_links(cluster), options);
  program::Program program =
      passes::rewrite(graph, strategy, cluster, options, planning::source_of(arguments.strategy));
  if (arguments.barrier) program = sim::with_barrier(std::move(program));

  const sim::CostModel costs = sim::calibrated_costs(
      program, cluster, {what_if.batch, arguments.micro_batches, what_if.device}, calibration);
  sim::SimulationOptions how;
  how.trace = !arguments.trace.empty();
  how.symmetry = !how.trace;  // a trace shows every rank
  const sim::Simulation simulation = sim::simulate(program, cluster, costs, how);
  if (how.trace) write_file_atomically(arguments.trace, program::to_chrome_json(simulation.trace));

  if (!arguments.chakra.empty()) write_chakra(arguments.chakra, program, costs);

  if (console.json) {
    console.out << planning::prediction_json(simulation, program, costs) << "\n";
    return 0;
  }
  console.out << fmt::format(
                     "{} on {} by {}, {} samples per replica\n\n", graph->name, arguments.cluster,
                     search::shown_name(planning::source_of(arguments.strategy)), costs.batch)
              << planning::prediction_table(simulation, program, costs, arguments.all ? 0 : 8);
  if (how.trace) console.out << "\nTrace written to " << arguments.trace << "\n";
  return 0;
}

}  // namespace

Action declare_simulate(CLI::App& verb) {
  auto arguments = std::make_shared<SimulateArguments>();
  verb.add_option("graph", arguments->graph,
                  "a captured graph, the name of a shipped one, or AutoDist's graph_item")
      ->required();
  verb.add_option("--cluster", arguments->cluster,
                  "resource specification, host file, or local:N (default local:2)");
  auto* file = verb.add_option("--strategy", arguments->strategy.file, "a strategy file");
  verb.add_option("--builder", arguments->strategy.builder, "NAME or NAME:key=value,… (see plan)")
      ->excludes(file);
  verb.add_option("--what-if", arguments->what_if,
                  "nodes=16,bandwidth=25 (Gbit/s),latency=2e-5,device=A100,batch=32");
  verb.add_option("--calibration", arguments->calibration,
                  "what was measured here (default: FILE.calibration.yml beside the cluster)");
  verb.add_option("--accumulate", arguments->micro_batches, "batches per step (default 1)")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--barrier", arguments->barrier, "no op before all variables are there");
  verb.add_option("--trace", arguments->trace, "write a Perfetto trace here");
  verb.add_option("--chakra", arguments->chakra, "write a Chakra trace per rank into this folder");
  verb.add_flag("--all", arguments->all, "show every node, rank and variable");
  declare_devices(verb, arguments->cpu_only);
  return [arguments](Console& console) { return simulate(*arguments, console); };
}

}  // namespace autodist::app
