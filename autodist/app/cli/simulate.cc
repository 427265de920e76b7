// `autodist simulate`: what a step would take, on a cluster that need not exist.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/cli/workload.h"
#include "autodist/app/output_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/text.h"
#include "autodist/ir/text.h"
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
  std::string trace;
  std::string chakra;
  std::int64_t micro_batches = 1;
  std::int64_t epoch = 0;  // samples; 0: not asked for
  bool barrier = false;
  bool all = false;
  bool cpu_only = false;
  Workload workload;
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

// One answer: a plan on a cluster, and what its step takes.
struct Answer {
  cluster::Cluster cluster;
  program::Program program;
  sim::CostModel costs;
  sim::Simulation simulation;

  [[nodiscard]] double samples_per_second() const {
    return planning::samples_per_second(simulation, program, costs);
  }
  [[nodiscard]] Seconds seconds_for(std::int64_t samples) const {
    return Seconds(static_cast<double>(samples) / samples_per_second());
  }
  // Of so many samples; nothing where a node has no price.
  [[nodiscard]] std::optional<double> cost_of(std::int64_t samples) const {
    double per_hour = 0;
    for (const cluster::Node& node : cluster.nodes) {
      if (!(node.price_per_hour > 0)) return {};
      per_hour += node.price_per_hour;
    }
    return per_hour * seconds_for(samples).value / 3600;
  }
  // What a replica does here, as a share of what one does there.
  [[nodiscard]] double efficiency_against(const Answer& other) const {
    const auto per_replica = [](const Answer& of) {
      return of.samples_per_second() / static_cast<double>(of.program.batch_parts());
    };
    return per_replica(*this) / per_replica(other);
  }
};

// Throws Error(kUsage) where what is to vary is not there, or is said twice.
void check_what_if(const sim::WhatIf& what_if, const SimulateArguments& arguments,
                   const cluster::Cluster& given) {
  if (what_if.nodes != 0 && !arguments.strategy.file.empty()) {
    fail(ErrorCode::kUsage,
         "--what-if nodes={} with --strategy {}: a strategy names the devices that it was made "
         "for. Use --builder.",
         what_if.nodes, arguments.strategy.file);
  }
  const bool asks_of_links = what_if.bandwidth > 0 || what_if.latency >= 0;
  if (asks_of_links && what_if.nodes == 0 && given.nodes.size() == 1) {
    fail(ErrorCode::kUsage,
         "--what-if {}: {} is one machine, without links between any. Add nodes=2, say.",
         what_if.bandwidth > 0 ? "bandwidth" : "latency", arguments.cluster);
  }
  if (what_if.batch != 0 &&
      (arguments.workload.batch != 0 || arguments.workload.replica_batch != 0)) {
    fail(ErrorCode::kUsage,
         "--what-if batch={} with --batch or --replica-batch. Leave one of them out.",
         what_if.batch);
  }
}

Answer answer(const SimulateArguments& arguments, const std::shared_ptr<const ir::Graph>& graph,
              const sim::WhatIf& what_if, Console& console) {
  const cluster::Cluster given = cluster::read_cluster(arguments.cluster);
  check_what_if(what_if, arguments, given);
  Answer answer;
  answer.cluster = sim::changed(given, what_if);
  const cluster::Cluster& cluster = answer.cluster;
  const sim::Calibration calibration =
      sim::read_calibration(arguments.cluster, arguments.workload.calibration);
  sim::CostOptions how_costs{what_if.batch, arguments.micro_batches, what_if.device};
  put_workload(arguments.workload, cluster, arguments.cpu_only, how_costs, console);
  planning::StrategyRequest request = arguments.strategy;
  request.calibration = calibration;
  request.costs = how_costs;
  request.cpu_only = arguments.cpu_only;
  std::vector<std::string> warnings;
  const strategy::Strategy strategy = planning::choose_strategy(request, *graph, cluster, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";

  passes::Options options = planning::declared_options(cluster, *graph, arguments.cpu_only);
  options.micro_batches = arguments.micro_batches;
  options.batch = how_costs.batch;
  options.verify_each = false;
  answer.program =
      passes::rewrite(graph, strategy, cluster, options, planning::source_of(arguments.strategy));
  refuse_placed(arguments.workload, answer.program);
  if (arguments.barrier) answer.program = sim::with_barrier(std::move(answer.program));
  answer.costs = sim::calibrated_costs(answer.program, cluster, how_costs, calibration);
  sim::SimulationOptions how;
  how.trace = !arguments.trace.empty();
  how.symmetry = !how.trace;  // a trace shows every rank
  answer.simulation = sim::simulate(answer.program, cluster, answer.costs, how);
  return answer;
}

constexpr std::int64_t kMillion = 1'000'000;
constexpr std::int64_t kMost = 1'000'000'000'000;  // samples, or micro-batches

// Nodes that have a price are of no use beside one that has none.
std::string lacks_price(const cluster::Cluster& cluster) {
  const auto priced = [](const cluster::Node& node) { return node.price_per_hour > 0; };
  const auto& nodes = cluster.nodes;
  const auto without = std::find_if_not(nodes.begin(), nodes.end(), priced);
  if (without == nodes.end() || std::none_of(nodes.begin(), nodes.end(), priced)) return "";
  return fmt::format("no cost: node {} has no price. Give every node one (price:), or none.\n",
                     without->address);
}

// What is asked for, as `simulate --json` says it.
void add_epoch(const Answer& answer, std::int64_t epoch, nlohmann::ordered_json& json) {
  if (epoch > 0) json["epoch_seconds"] = answer.seconds_for(epoch).value;
  const auto cost = answer.cost_of(epoch > 0 ? epoch : kMillion);
  if (cost) json[epoch > 0 ? "cost_of_epoch" : "cost_of_million_samples"] = *cost;
}

std::string hours_and_minutes(Seconds seconds) {
  if (seconds < Seconds(60)) return to_string(seconds);
  const auto minutes = std::llround(seconds.value / 60);
  return minutes < 60 ? fmt::format("{} min", minutes)
                      : fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string what_costs(std::int64_t epoch) {
  return fmt::format(
      "of {}, at the nodes' prices per hour",
      epoch > 0 ? fmt::format("an epoch of {} samples", epoch) : "a million samples");
}

std::string epoch_lines(const Answer& answer, std::int64_t epoch) {
  std::string text;
  if (epoch > 0) {
    text = fmt::format("epoch          {} for {} samples\n",
                       hours_and_minutes(answer.seconds_for(epoch)), epoch);
  }
  if (const auto cost = answer.cost_of(epoch > 0 ? epoch : kMillion)) {
    text += fmt::format("cost           {:.2f}, {}\n", *cost, what_costs(epoch));
  }
  text += lacks_price(answer.cluster);
  return text.empty() ? "" : "\n" + text;
}

// The table's rows, with a bar for the samples per second where the columns leave room for bars.
std::string with_bars(const std::string& table, const std::vector<Answer>& answers,
                      std::size_t columns) {
  constexpr std::size_t kWidest = 24;
  constexpr std::size_t kNarrowest = 6;
  double most = 0;
  for (const Answer& each : answers) most = std::max(most, each.samples_per_second());
  const std::vector<std::string> lines = split(table, '\n');
  std::size_t widest = 0;
  for (const std::string& line : lines) widest = std::max(widest, columns_of(line));
  std::size_t room = kWidest;
  if (columns > 0) room = columns > widest + 2 ? std::min(room, columns - widest - 2) : 0;
  if (room < kNarrowest) return table;
  std::string text = lines.front() + "\n";
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const double share = answers[i].samples_per_second() / most;
    text += lines[i + 1] + std::string(widest + 2 - columns_of(lines[i + 1]), ' ');
    for (auto k = std::lround(share * static_cast<double>(room)); k > 0; --k) text += "█";
    text += "\n";
  }
  return text;
}

// A row per value.
std::string sweep_table(const std::string& varies, const std::vector<std::string>& values,
                        const std::vector<Answer>& answers, std::int64_t epoch,
                        std::size_t columns) {
  const std::int64_t samples = epoch > 0 ? epoch : kMillion;
  const bool priced = answers.front().cost_of(samples).has_value();
  std::vector<std::vector<std::string>> rows{{varies == "batch" ? "per replica" : varies, "step",
                                              "batch", "samples/s", "efficiency", "memory"}};
  if (epoch > 0) rows.front().push_back("epoch");
  if (priced) rows.front().push_back("cost");
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& each = answers[i];
    rows.push_back({values[i], to_string(each.simulation.step),
                    std::to_string(planning::samples_of_step(each.program, each.costs)),
                    fmt::format("{:.1f}", each.samples_per_second()),
                    fmt::format("{:.0f} %", 100 * each.efficiency_against(answers.front())),
                    to_string(sim::peak_bytes(each.simulation.memory))});
    if (epoch > 0) rows.back().push_back(hours_and_minutes(each.seconds_for(epoch)));
    if (priced) rows.back().push_back(fmt::format("{:.2f}", *each.cost_of(samples)));
  }
  std::vector<std::size_t> right(rows.front().size());
  std::iota(right.begin(), right.end(), 0);
  std::string text =
      with_bars(ir::align(rows, "", right), answers, columns) +
      fmt::format("\nbatch: {}, at {}={}\n",
                  planning::batch_of_step(answers.front().program, answers.front().costs), varies,
                  values.front()) +
      fmt::format("efficiency: samples/s of a replica against {}={}\n", varies, values.front());
  if (priced) text += fmt::format("cost: {}\n", what_costs(epoch));
  return text + lacks_price(answers.front().cluster);
}

std::string title(const SimulateArguments& arguments, const ir::Graph& graph,
                  const std::string& more = "") {
  return title_of(graph.name, arguments.cluster,
                  search::shown_name(planning::source_of(arguments.strategy)) + more,
                  arguments.workload);
}

nlohmann::ordered_json answer_json(const SimulateArguments& arguments, const ir::Graph& graph,
                                   const Answer& answer) {
  nlohmann::ordered_json json =
      planning::prediction_json(answer.simulation, answer.program, answer.costs);
  json["model"] = graph.name;
  json["cluster"] = arguments.cluster;
  json["plan"] = search::shown_name(planning::source_of(arguments.strategy));
  name_calibration(arguments.cluster, arguments.workload, json);
  add_epoch(answer, arguments.epoch, json);
  return json;
}

int simulate_all(const SimulateArguments& arguments, const std::shared_ptr<const ir::Graph>& graph,
                 const sim::WhatIfs& what_ifs, Console& console) {
  if (!arguments.trace.empty() || !arguments.chakra.empty()) {
    fail(ErrorCode::kUsage,
         "--what-if: {} varies, and --trace and --chakra are of one simulation. Give it one value, "
         "or leave them out.",
         what_ifs.varies);
  }
  std::vector<std::string> values;
  std::vector<Answer> answers;
  for (const sim::WhatIfs::Each& each : what_ifs.each) {
    values.push_back(each.value);
    answers.push_back(answer(arguments, graph, each.what_if, console));
  }
  if (console.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      all.push_back({{what_ifs.varies, values[i]},
                     {"efficiency", answers[i].efficiency_against(answers.front())},
                     {"prediction", answer_json(arguments, *graph, answers[i])}});
    }
    return console.answer(all);
  }
  console.out << title(arguments, *graph)
              << sweep_table(what_ifs.varies, values, answers, arguments.epoch, console.columns);
  for (const std::string& line : answers.back().costs.uncalibrated) {
    console.out << "uncalibrated: " << line << "\n";
  }
  return 0;
}

int simulate(const SimulateArguments& arguments, Console& console) {
  expect_writable("--trace", arguments.trace);
  expect_folder("--chakra", arguments.chakra);
  const sim::WhatIfs what_ifs = sim::parse_what_ifs(arguments.what_if);
  const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(arguments.graph));
  if (!what_ifs.varies.empty()) return simulate_all(arguments, graph, what_ifs, console);
  const Answer only = answer(arguments, graph, what_ifs.each.front().what_if, console);
  const bool traced = !arguments.trace.empty();
  if (traced) {
    write_file_atomically(arguments.trace, program::to_chrome_json(only.simulation.trace));
  }
  if (!arguments.chakra.empty()) write_chakra(arguments.chakra, only.program, only.costs);

  if (console.json) return console.answer(answer_json(arguments, *graph, only));
  console.out << title(arguments, *graph,
                       fmt::format(", {} sample{} per replica", only.costs.batch,
                                   only.costs.batch == 1 ? "" : "s"))
              << planning::prediction_table(only.simulation, only.program, only.costs,
                                            arguments.all ? 0 : 8, console.columns)
              << epoch_lines(only, arguments.epoch);
  if (traced) console.out << "\nTrace written to " << arguments.trace << "\n";
  return 0;
}

}  // namespace

Action declare_simulate(CLI::App& verb) {
  auto arguments = std::make_shared<SimulateArguments>();
  declare_graph(verb, arguments->graph);
  declare_cluster(verb, arguments->cluster);
  auto* file = verb.add_option("--strategy", arguments->strategy.file, "a strategy file");
  verb.add_option("--builder", arguments->strategy.builder, "NAME or NAME:key=value,… (see plan)")
      ->excludes(file);
  verb.add_option(
      "--what-if", arguments->what_if,
      "nodes=16,bandwidth=25 (Gbit/s),latency=2e-5 (s),device=A100,batch=32 (per replica); one "
      "of them may vary (nodes=1..16, bandwidth=10|25|100), for a chart");
  verb.add_option("--accumulate", arguments->micro_batches, "batches per step (default 1)")
      ->check(in_range(std::int64_t{1}, kMost));
  verb.add_option("--samples-per-epoch", arguments->epoch,
                  "also say what an epoch of so many samples takes, and costs where the nodes of "
                  "the cluster's file have a price")
      ->check(in_range(std::int64_t{1}, kMost));
  verb.add_flag("--barrier", arguments->barrier,
                "no op of a step begins before all variables are there, as in loops that end with "
                "optimizer.step()");
  verb.add_option("--trace", arguments->trace, "write a Perfetto trace here");
  verb.add_option("--chakra", arguments->chakra, "write a Chakra trace per rank into this folder");
  verb.add_flag("--all", arguments->all, "show every node, rank and variable");
  declare_devices(verb, arguments->cpu_only);
  declare_workload(verb, arguments->workload);
  return [arguments](Console& console) { return simulate(*arguments, console); };
}

}  // namespace autodist::app
