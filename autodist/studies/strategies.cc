#include "autodist/studies/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "autodist/planning/archive.h"
#include "autodist/planning/searching.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/search/autosync/space.h"
#include "autodist/search/builders/builders.h"
#include "autodist/studies/figures.h"

namespace autodist::studies {
namespace {

constexpr const char* kFileOfA = "autosync-a.yml";
constexpr const char* kFileOfB = "autosync-b.yml";

constexpr Bytes kUncutMessages{std::int64_t{1} << 40};

Seconds step_of(const OwnSystem& system, const std::shared_ptr<const ir::Graph>& graph,
                const cluster::Cluster& cluster, const sim::CostOptions& how) {
  const program::Program program = sim::with_barrier(passes::rewrite(
      graph, strategy_of(system, *graph, cluster), cluster, {.verify_each = false}, system.name));
  return sim::simulate(program, cluster, sim::cost_model(program, cluster, how)).step;
}

std::string gains_table(const std::vector<StrategyRow>& rows) {
  std::string text =
      "| cluster | model | batch | best system | ms | best builder | ms | searched, ms | gain over "
      "the system | ideal | gain on equal engine | above the problem's bound |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const StrategyRow& row : rows) {
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.1f} % |\n",
        row.cluster, row.of.model, row.of.batch, own_systems()[row.best_own()].name,
        milliseconds(row.own[row.best_own()]), row.best_builder, milliseconds(row.builder_step),
        milliseconds(row.found_step), row.gain_over_own(), row.ideal_gain(),
        row.gain_on_equal_engine(), 100 * row.gap());
  }
  return text;
}

// Without what a search took: a page that is the same on every machine.
std::string systems_table(const std::vector<StrategyRow>& rows, bool with_seconds) {
  std::string text = "| cluster | model |";
  std::string line = "|---|---|";
  for (const OwnSystem& system : own_systems()) {
    text += " " + system.name + " |";
    line += "---|";
  }
  text += " searched | plan's bound | problem's bound | simulations |";
  text += with_seconds ? " search, s |\n" : "\n";
  text += line + (with_seconds ? "---|---|---|---|---|\n" : "---|---|---|---|\n");
  for (const StrategyRow& row : rows) {
    text += fmt::format("| {} | {} |", row.cluster, row.of.model);
    for (const Seconds& step : row.own) text += " " + milliseconds(step) + " |";
    text +=
        fmt::format(" {} | {} | {} | {} |", milliseconds(row.found_step),
                    milliseconds(row.plan_bound), milliseconds(row.problem_bound), row.simulations);
    text += with_seconds ? fmt::format(" {:.1f} |\n", row.search_seconds.value) : "\n";
  }
  return text;
}

}  // namespace

void forget_priorities(strategy::Strategy& strategy, const ir::Graph& graph) {
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const auto& complete = graph.variables[i].gradient_complete;
    strategy.nodes[i].needed = Seconds(complete ? static_cast<double>(complete->value) : 0);
  }
}

const std::vector<StrategyCase>& strategy_cases() {
  static const std::vector<StrategyCase> cases{{"ncf", "ncf", 256, true},
                                               {"densenet121", "densenet121", 32, false},
                                               {"inception-v3", "inception_v3", 32, false},
                                               {"resnet101", "resnet101", 32, false},
                                               {"vgg16", "vgg16", 32, true},
                                               {"bert-large", "bert_large", 8, true}};
  return cases;
}

const std::vector<OwnSystem>& own_systems() {
  static const std::vector<OwnSystem> systems{
      {"DDP-like", "DDP-like:algorithm=library", false, false},
      {"Horovod-like", "Horovod-like:algorithm=library", false, false},
      {"PS-LB", "PSLoadBalancing", true, false},
      {"Parallax", "Parallax:algorithm=library", true, false},
      {"BytePS", "BytePS", true, true}};
  return systems;
}

strategy::Strategy strategy_of(const OwnSystem& system, const ir::Graph& graph,
                               const cluster::Cluster& cluster) {
  strategy::Strategy strategy = search::build_strategy(system.builder, graph, cluster);
  if (system.priorities) {
    strategy::fix_priorities(strategy, graph);
  } else {
    forget_priorities(strategy, graph);
  }
  if (system.whole_tensors) strategy.slice_bytes = kUncutMessages;
  return strategy;
}

std::vector<BuilderStep> builder_steps(const std::shared_ptr<const ir::Graph>& graph,
                                       const cluster::Cluster& cluster,
                                       const planning::SearchRequest& request,
                                       const std::vector<std::string>& builders) {
  const search::Judge judge(graph, cluster, request.passes, [&](const program::Program& program) {
    return sim::calibrated_costs(program, cluster, request.costs, request.calibration);
  });
  const program::Program program = search::seed_program(judge, *graph, cluster);
  const ir::Graph timed = sim::with_times(program, judge.costs_of(program));
  std::vector<BuilderStep> steps;
  for (const std::string& builder : builders) {
    strategy::Strategy strategy = search::build_strategy(builder, timed, cluster);
    std::string why_not;
    const auto judged = judge(strategy, why_not);
    steps.push_back({builder, std::move(strategy),
                     judged ? std::optional<Seconds>(judged->step) : std::nullopt});
  }
  return steps;
}

std::size_t StrategyRow::best_own() const {
  return static_cast<std::size_t>(std::min_element(own.begin(), own.end()) - own.begin());
}

StrategyRow compare_strategies(const StrategyCase& of, const cluster::Cluster& cluster,
                               const std::string& name, const search::SearchOptions& options) {
  const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(of.model));
  planning::SearchRequest request;
  request.options = options;
  request.costs.batch = of.batch;
  StrategyRow row;
  row.cluster = name;
  row.of = of;
  const search::Judge judge(graph, cluster, request.passes, [&](const program::Program& program) {
    return sim::cost_model(program, cluster, request.costs);
  });
  const program::Program program = search::seed_program(judge, *graph, cluster);
  const auto timed =
      std::make_shared<const ir::Graph>(sim::with_times(program, judge.costs_of(program)));
  for (const OwnSystem& system : own_systems()) {
    row.own.push_back(step_of(system, timed, cluster, request.costs));
  }
  const planning::SearchedPlan plan = planning::search_plan(graph, cluster, request);
  row.found = plan.name;
  row.found_step = plan.simulation.step;
  row.plan_bound = plan.simulation.bounds.plan;
  row.problem_bound = plan.simulation.bounds.problem;
  // A search leaves out builders that cannot be best; here they are what it is compared with.
  const search::Space space(*graph, cluster, request.options.allowed, of.batch);
  for (const BuilderStep& each :
       builder_steps(graph, cluster, planning::with_links(request, *graph, cluster),
                     search::seeds(space.allowed()))) {
    if (!each.step || (!row.best_builder.empty() && *each.step >= row.builder_step)) continue;
    row.best_builder = each.builder;
    row.builder_step = *each.step;
  }
  row.simulations = plan.found.simulations;
  row.search_seconds = plan.found.elapsed;
  return row;
}

std::vector<StrategyRow> compare_all(const std::string& folder,
                                     const search::SearchOptions& options,
                                     const std::vector<std::string>& models,
                                     const std::function<void(const StrategyRow&)>& done) {
  std::vector<StrategyRow> rows;
  for (const StrategyCase& each : strategy_cases()) {
    if (!models.empty() && std::find(models.begin(), models.end(), each.model) == models.end()) {
      continue;
    }
    for (const auto& [name, file] : {std::pair{"A", kFileOfA}, std::pair{"B", kFileOfB}}) {
      const std::string path = (std::filesystem::path(folder) / file).string();
      rows.push_back(compare_strategies(each, cluster::read_cluster(path), name, options));
      done(rows.back());
    }
  }
  return rows;
}

std::map<std::string, double> search_speed(const std::string& folder, Seconds longer) {
  const cluster::Cluster cluster =
      cluster::read_cluster((std::filesystem::path(folder) / kFileOfB).string());
  std::map<std::string, double> figures;
  double& loss = figures["loss_against_long_search"];
  for (const StrategyCase& each : strategy_cases()) {
    if (!each.claimed) continue;
    search::SearchOptions options;
    const StrategyRow usual = compare_strategies(each, cluster, "B", options);
    options.budget.seconds = longer;
    const StrategyRow more = compare_strategies(each, cluster, "B", options);
    loss = std::max(loss, usual.found_step / more.found_step - 1);
    if (each.name == "bert_large") {
      figures["search_s_bert_large_16"] = usual.search_seconds.value;
    }
  }
  return figures;
}

std::map<std::string, double> strategy_figures(const std::vector<StrategyRow>& rows) {
  std::map<std::string, double> figures;
  const auto least = [&](const std::string& name, double value) {
    const auto [at, is_new] = figures.emplace(name, value);
    if (!is_new) at->second = std::min(at->second, value);
  };
  double logs = 0;
  std::size_t claimed = 0;
  for (const StrategyRow& row : rows) {
    least("gain_never_below", row.gain_over_own());
    if (!row.of.claimed) continue;
    least("gain_over_own_system_" + row.of.name, row.gain_over_own());
    double& gap = figures["gap_to_problem_bound_" + row.of.name];
    gap = std::max(gap, row.gap());
    double& most = figures["gain_on_equal_engine_max"];
    most = std::max(most, row.gain_on_equal_engine());
    logs += std::log(row.gain_on_equal_engine());
    ++claimed;
  }
  if (claimed > 0) {
    figures["gain_on_equal_engine_geomean"] = std::exp(logs / static_cast<double>(claimed));
  }
  return figures;
}

std::string strategy_table(const std::vector<StrategyRow>& rows) {
  return gains_table(rows) + "\n" + systems_table(rows, true);
}

std::string strategy_page(const std::vector<StrategyRow>& rows, const std::string& budget,
                          bool timed) {
  std::string text =
      "# Searched strategies against other systems' and builders'\n\n"
      "Made by `autodist bench search`. All times are the simulator's, uncalibrated: roofline "
      "times of the devices, the engine's default rates. A and B are AutoSync's clusters "
      "(`data/clusters/`).\n\n"
      "*Best system* is the fastest of the five as they run by themselves: DDP-like in buckets and "
      "Horovod-like in cycles, with a library's ring, first in, first out; PS-LB with whole "
      "tensors, first in, first out; Parallax, both of these; BytePS in parts of 4 MB by priority; "
      "all with a barrier before every step. *Best builder* is the fastest of all builders, on our "
      "engine with its priorities and without the barrier, so that the gain on equal engine is "
      "what the strategy alone gives. *Ideal* is the best system's step over the problem's bound, "
      "which no lossless synchronous strategy beats.\n\n";
  text += fmt::format("Budget of each search: {}.\n\n", budget);
  text += gains_table(rows) + "\n## Every system\n\nMilliseconds per step.\n\n";
  text += systems_table(rows, timed) + "\n## Figures\n\n| name | value |\n|---|---|\n";
  for (const auto& [name, value] : strategy_figures(rows)) {
    text += fmt::format("| `{}` | {:.3f} |\n", name, value);
  }
  return text;
}

}  // namespace autodist::studies
