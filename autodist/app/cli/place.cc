// `autodist place`: which task on which device, how long a step takes, and how far that can be from
// the best.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <memory>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/placement_page.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/this_process.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/placing.h"

namespace autodist::app {
namespace {

namespace placement = search::placement;

struct PlaceArguments {
  std::string graph;
  std::string cluster;
  std::size_t devices = 0;
  std::string objective;
  std::string placer = "portfolio";
  std::string order = "topo";
  std::string budget = "10s";
  std::string simulator;
  std::uint64_t evaluations = 0;
  std::uint64_t seed = 0;
  std::size_t threads = 0;
  std::string output;
  std::string report;
  std::uint32_t replicas = 1;
  bool dot = false;
};

// Before the search, which may take long.
void check_output(const PlaceArguments& arguments, const placement::TaskGraph& graph) {
  if (!arguments.output.ends_with(".strategy")) return;
  if (arguments.cluster.empty() || !planning::is_captured(arguments.graph)) {
    fail(ErrorCode::kUsage,
         "-o {}: a strategy runs a captured graph on a cluster, {} given. Use --cluster, or a name "
         "that does not end in .strategy.",
         arguments.output,
         arguments.cluster.empty() ? "no cluster" : fmt::format("'{}'", graph.name));
  }
}

void write_output(const PlaceArguments& arguments, const std::string& json,
                  const placement::PlaceResult& result) {
  if (arguments.output.empty()) return;
  write_file_atomically(arguments.output, arguments.output.ends_with(".strategy")
                                              ? strategy::serialize(planning::placement_strategy(
                                                    planning::load_graph(arguments.graph),
                                                    cluster::read_cluster(arguments.cluster),
                                                    arguments.replicas, result))
                                              : json + "\n");
}

// The first of the equal parts that the replicas take.
std::vector<planning::NamedDevice> first_part(std::vector<planning::NamedDevice> devices,
                                              const PlaceArguments& arguments) {
  if (devices.size() % arguments.replicas != 0) {
    fail(ErrorCode::kUsage,
         "--replicas {}: {} has {} ranks, which are not so many equal parts. Give a number that "
         "divides {}.",
         arguments.replicas, arguments.cluster, devices.size(), devices.size());
  }
  devices.resize(devices.size() / arguments.replicas);
  return devices;
}

// The graph, and what it is placed on.
planning::OnCluster problem_of(const PlaceArguments& arguments) {
  if (arguments.cluster.empty()) {
    placement::TaskGraph tasks = planning::load_task_graph(arguments.graph);
    std::vector<planning::NamedDevice> devices =
        planning::devices_by_count(arguments.devices, tasks);
    return {std::move(tasks), std::move(devices)};
  }
  const cluster::Cluster cluster = cluster::read_cluster(arguments.cluster);
  planning::OnCluster problem;
  if (planning::is_captured(arguments.graph)) {
    problem = planning::on_cluster(planning::load_graph(arguments.graph), cluster);
  } else {
    problem.tasks = planning::load_task_graph(arguments.graph);
    problem.devices = planning::devices_of_cluster(cluster, problem.tasks);
  }
  problem.devices = first_part(std::move(problem.devices), arguments);
  return problem;
}

// Tasks whose tensors cross for nothing, at whole times: scheduling on equal processors.
bool is_without_communication(const placement::TaskGraph& graph) {
  return !graph.stated &&
         std::all_of(graph.tasks.begin(), graph.tasks.end(), [](const placement::Task& task) {
           return task.cost == static_cast<double>(static_cast<std::int32_t>(task.cost)) &&
                  std::all_of(task.outputs.begin(), task.outputs.end(),
                              [](const placement::TaskOutput& output) {
                                return output.bytes == 0 && output.transfer == 0.0;
                              });
         });
}

placement::Objective objective_of(const PlaceArguments& arguments,
                                  const placement::TaskGraph& graph) {
  const bool throughput =
      arguments.objective.empty() ? graph.stated.has_value() : arguments.objective == "throughput";
  if (throughput) return placement::Objective::kThroughput;
  if (arguments.cluster.empty() && is_without_communication(graph)) {
    return placement::Objective::kProcessors;
  }
  return placement::Objective::kMakespan;
}

// Placeto's simulator knows equal devices and µs alone.
bool simulates_as_placeto(const PlaceArguments& arguments, const placement::TaskGraph& graph) {
  const bool possible = arguments.cluster.empty() && graph.microseconds_per_unit == 1;
  if (arguments.simulator == "placeto" && !possible) {
    fail(ErrorCode::kUsage,
         "--simulator placeto: knows equal devices and graphs in µs alone, {} given. Use links.",
         arguments.cluster.empty() ? "a graph in ms" : "a cluster");
  }
  return arguments.simulator.empty() ? possible : arguments.simulator == "placeto";
}

// At the end of the budget once a signal asks to end: what was found until then is the answer.
class UntilStopped final : public Clock {
 public:
  explicit UntilStopped(Seconds budget) : budget_(budget), stop_(watch_stop_signals()) {}
  [[nodiscard]] Seconds now() const override {
    return is_stopped() ? clock_.now() + budget_ : clock_.now();
  }
  [[nodiscard]] bool is_stopped() const { return stop_; }

 private:
  Seconds budget_;
  const std::atomic<bool>& stop_;
  SteadyClock clock_;
};

int place(const PlaceArguments& arguments, Console& console) {
  if (!arguments.cluster.empty() && arguments.devices > 0) {
    fail(ErrorCode::kUsage,
         "--cluster and --devices exclude each other, both given. Leave one of them out.");
  }
  expect_writable("--output", arguments.output);
  expect_writable("--report", arguments.report);
  const planning::OnCluster problem = problem_of(arguments);
  const placement::TaskGraph& graph = problem.tasks;
  const std::vector<planning::NamedDevice>& devices = problem.devices;
  check_output(arguments, graph);
  placement::PlaceRequest request;
  request.objective = objective_of(arguments, graph);
  for (const planning::NamedDevice& device : devices) request.devices.push_back(device.figures);
  request.placer = arguments.placer;
  request.order = placement::parse_order(arguments.order);
  request.budget = planning::parse_duration(arguments.budget);
  if (arguments.evaluations > 0) request.evaluations = arguments.evaluations;
  request.seed = arguments.seed;
  request.threads = arguments.threads;
  request.placeto = simulates_as_placeto(arguments, graph);
  const UntilStopped clock(request.budget);
  const placement::PlaceResult result = placement::place(graph, request, clock);
  if (result.placement.empty()) {
    fail(ErrorCode::kInfeasible,
         "{}: '{}' has found no placement on {} devices: their memory is too little, or the graph "
         "is too large for this placer (place --help). Use more devices, or another placer.",
         graph.name, request.placer, devices.size());
  }
  if (result.stopped_by_clock) {
    say_line(fmt::format("{}: another run may give another answer",
                         clock.is_stopped() ? "stopped early" : "the budget ended by the clock"));
  }
  write_output(arguments, planning::placement_json(graph, devices, request, result, true), result);
  if (!arguments.report.empty()) {
    report::write_page(placement_page(graph, devices, request, result), arguments.report);
  }
  if (console.json) {
    console.out << planning::placement_json(graph, devices, request, result, false) << "\n";
  } else if (arguments.dot) {
    console.out << planning::placement_dot(graph, result);
  } else {
    console.out << fmt::format("{} on {} devices by {}\n\n", graph.name, devices.size(),
                               request.placer)
                << planning::placement_table(graph, devices, request, result, console.columns);
    if (!arguments.output.empty()) console.out << "\nWritten to " << arguments.output << "\n";
    if (!arguments.report.empty()) console.out << "\nReport in " << arguments.report << "\n";
  }
  return 0;
}

bool is_placer(const std::string& name) {
  for (const placement::Objective objective :
       {placement::Objective::kMakespan, placement::Objective::kThroughput,
        placement::Objective::kProcessors}) {
    const std::vector<std::string> names = placement::placer_names(objective);
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  }
  return false;
}

std::string placers_help() {
  std::string text = "portfolio (default);";
  for (const auto& [name, objective] :
       {std::pair{"makespan", placement::Objective::kMakespan},
        std::pair{"throughput", placement::Objective::kThroughput},
        std::pair{"without communication", placement::Objective::kProcessors}}) {
    std::vector<std::string> names = placement::placer_names(objective);
    names.erase(names.begin());
    text += fmt::format(" {}: {};", name, fmt::join(names, " "));
  }
  text.pop_back();
  return text;
}

}  // namespace

Action declare_place(CLI::App& verb) {
  auto arguments = std::make_shared<PlaceArguments>();
  verb.add_option(
          "graph", arguments->graph,
          "a captured graph, the name of a shipped one, or a published task graph: "
          "NeurIPS'20 throughput JSON, PipeDream text, STG, Placeto JSON; plain or gzipped; or "
          "generated:FAMILY:SEED with cells, attention or recurrent")
      ->required();
  verb.add_option("--cluster", arguments->cluster,
                  "a cluster file, a host file, or local:N; each rank is a device");
  verb.add_option("--devices", arguments->devices,
                  "so many equal devices (default: what the file states)")
      ->check(in_range(1, 4096));
  verb.add_option("--objective", arguments->objective,
                  "makespan: the time of one step; throughput: the largest load, steps pipelined "
                  "(default where the file states its devices)")
      ->check(CLI::IsMember({"makespan", "throughput"}));
  verb.add_option("--placer", arguments->placer, placers_help());
  verb.add_option("--order", arguments->order,
                  "for descent and linear: in which order ops are visited (default topo)")
      ->check(CLI::IsMember({"alpha", "topo", "reversed_topo", "lexico_topo", "dfs_preorder",
                             "dfs_postorder", "bfs", "random"}));
  verb.add_option(
      "--budget", arguments->budget,
      "how long at most, with its unit: 10s, 500ms or 2m (default 10s); it buys a count of "
      "evaluations, so that a seed gives one answer");
  verb.add_option("--evaluations,--simulations", arguments->evaluations,
                  "how many evaluations: simulations for makespan, moves for throughput; --budget "
                  "still ends the search")
      ->check(in_range(std::uint64_t{1}, std::uint64_t{1'000'000'000'000}));
  verb.add_option("--simulator", arguments->simulator,
                  "placeto (default with --devices), or links: contention at both ends, device "
                  "speeds, hard memory (default with --cluster)")
      ->check(CLI::IsMember({"placeto", "links"}));
  verb.add_option("--seed", arguments->seed, "of the searches that draw (default 0)");
  verb.add_option("--threads", arguments->threads,
                  "at most so many (default: one per core); the answer does not depend on it");
  verb.add_option(
      "-o,--output", arguments->output,
      "write the device of every task here: a strategy for train where the name ends in "
      ".strategy, else JSON");
  verb.add_option("--replicas", arguments->replicas,
                  "of the strategy: place on one of so many equal parts of the cluster; the others "
                  "do the same with other rows (default 1)")
      ->check(in_range(std::uint32_t{1}, std::uint32_t{4096}));
  verb.add_option("--report", arguments->report,
                  "write a page for a browser here: load, memory and traffic of every device, and "
                  "its timeline");
  verb.add_flag("--dot", arguments->dot, "the tasks as a DOT graph coloured by device");
  return [arguments, &verb](Console& console) {
    expect_with(verb, "--replicas", "--cluster");
    const std::string& placer = arguments->placer;
    placement::parse_order(arguments->order);
    // place() refuses an unknown one.
    if (is_placer(placer) && placer != "linear" && placer != "descent") {
      expect_with(verb, "--order", "--placer");
      expect_without(verb, "--order", "--placer",
                     fmt::format("of linear and descent, and --placer {} takes none", placer));
    }
    if (console.json) expect_without(verb, "--dot", "--json", "text, and --json prints JSON");
    return place(*arguments, console);
  };
}

}  // namespace autodist::app
