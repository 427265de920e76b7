// `autodist capture`: one training step of a model as a graph file.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/torch/model_source.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/capture/capture.h"
#include "autodist/ir/graph_file.h"
#include "autodist/report/inspect.h"

namespace autodist::app {
namespace {

struct CaptureArguments {
  ModelRequest model;
  std::string output;
  std::string optimizer = "adam:lr=1e-3";
  bool batch_fixed = false;
  bool without_costs = false;
};

int capture_verb(const CaptureArguments& arguments, Console& console) {
  const ir::Optimizer optimizer = ir::parse_optimizer(arguments.optimizer);
  expect_writable("--output", arguments.output);
  const ModelSource source = open_model(arguments.model, "synthetic");
  capture::Options options;
  options.symbolic_batch = !arguments.batch_fixed;
  options.seed = arguments.model.seed;
  if (arguments.without_costs) options.cost_repetitions = 0;
  ir::Graph graph = capture::capture_step(source.step, options);
  ir::declare_updates(graph, optimizer);
  ir::write_graph(arguments.output, graph);
  if (console.json) {
    console.out << report::summary_json(graph) << "\n";
  } else {
    console.out << report::summary(graph) << "\nWritten to " << arguments.output << "\n";
  }
  return 0;
}

}  // namespace

Action declare_capture(CLI::App& verb) {
  auto arguments = std::make_shared<CaptureArguments>();
  declare_model_options(verb, arguments->model);
  verb.add_option("-o,--output", arguments->output, "write the graph here")->required();
  verb.add_option("--batch", arguments->model.batch,
                  "samples of the example, per replica (default: the model's own)")
      ->check(in_range(std::int64_t{1}, kMostCount));
  verb.add_option("--optimizer", arguments->optimizer, "declared with the graph");
  verb.add_flag("--batch-fixed", arguments->batch_fixed,
                "record at one batch size only; the graph cannot be split over replicas");
  verb.add_flag("--no-costs", arguments->without_costs, "do not time the ops");
  return [arguments, &verb](Console& console) {
    check_model_options(verb, arguments->model);
    return capture_verb(*arguments, console);
  };
}

}  // namespace autodist::app
