#include "autodist/studies/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>

#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/searching.h"
#include "autodist/search/autosync/moves.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/sim/what_if.h"
#include "autodist/studies/figures.h"

namespace autodist::studies {
namespace {

cluster::Cluster with_links_of(const cluster::Cluster& cluster, double gbit_per_s) {
  sim::WhatIf what_if;
  what_if.bandwidth = gbit_per_s;
  return sim::changed(cluster, what_if);
}

constexpr std::uint32_t kMostAttempts = 100;  // for each that is drawn
constexpr Seconds kNever{std::numeric_limits<double>::infinity()};

}  // namespace

std::vector<SweepCase> sweep_cases(bool quick) {
  const std::vector<double> links =
      quick ? std::vector<double>{1, 10, 100} : std::vector<double>{1, 2.5, 5, 10, 25, 50, 100};
  std::vector<SweepCase> cases;
  for (const StrategyCase& of : strategy_cases()) {
    if (!of.claimed && of.model != "resnet101") continue;
    for (const std::int64_t batch : {of.batch, of.batch / 4}) {
      for (const double link : links) cases.push_back({{of.model, of.name, batch, true}, link});
    }
  }
  return cases;
}

std::vector<SweepRow> sweep(const std::vector<SweepCase>& cases, const cluster::Cluster& cluster,
                            const search::SearchOptions& options,
                            const std::function<void(const SweepRow&)>& done) {
  std::vector<SweepRow> rows;
  for (const SweepCase& each : cases) {
    const cluster::Cluster machines = with_links_of(cluster, each.gbit_per_s);
    rows.push_back({each, compare_strategies(each.of, machines, "", options)});
    done(rows.back());
  }
  return rows;
}

Chance chance_of(const StrategyCase& of, const cluster::Cluster& cluster, std::uint32_t drawn,
                 const search::SearchOptions& options) {
  const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(of.model));
  planning::SearchRequest request;
  request.options = options;
  request.costs.batch = of.batch;
  request = planning::with_links(request, *graph, cluster);
  const search::Judge judge(graph, cluster, request.passes, [&](const program::Program& program) {
    return sim::cost_model(program, cluster, request.costs);
  });
  std::string why_not;
  const search::Space space(*graph, cluster, request.options.allowed, request.passes.batch);
  std::mt19937_64 random(options.seed);
  std::vector<Seconds> steps;
  for (std::uint32_t attempt = 0; steps.size() < drawn; ++attempt) {
    if (attempt == kMostAttempts * drawn) {
      fail(ErrorCode::kInfeasible, "sweep: {} of {} drawn strategies can be carried out; {}",
           steps.size(), attempt, why_not);
    }
    const auto judged = judge(space.strategy_of(search::sample(space, random)), why_not);
    if (judged) steps.push_back(judged->fits() ? judged->step : kNever);
  }
  const auto share_below = [&](Seconds step) {
    const auto faster =
        std::count_if(steps.begin(), steps.end(), [&](const Seconds& each) { return each < step; });
    return static_cast<double>(faster) / drawn;
  };
  Chance chance{
      of, drawn, {}, share_below(planning::search_plan(graph, cluster, request).simulation.step)};
  // Factors are a choice of the space, as what was drawn: builders go as they are and by a library.
  search::Allowed columns;
  columns.algorithms = {strategy::AllReduceAlgorithm::kDirect,
                        strategy::AllReduceAlgorithm::kLibrary};
  for (const BuilderStep& each : builder_steps(graph, cluster, request, search::seeds(columns))) {
    chance.shares.emplace_back(each.builder, each.step ? share_below(*each.step) : -1);
  }
  return chance;
}

std::string sweep_json(const std::vector<SweepRow>& rows, const std::vector<Chance>& chances) {
  auto json = nlohmann::ordered_json{{"rows", nlohmann::ordered_json::array()},
                                     {"chances", nlohmann::ordered_json::array()}};
  for (const auto& [of, row] : rows) {
    json["rows"].push_back({{"model", of.of.model},
                            {"batch", of.of.batch},
                            {"gbit_per_s", of.gbit_per_s},
                            {"best_system", own_systems()[row.best_own()].name},
                            {"best_system_step_seconds", row.own[row.best_own()].value},
                            {"best_builder", row.best_builder},
                            {"best_builder_step_seconds", row.builder_step.value},
                            {"step_seconds", row.found_step.value},
                            {"problem_bound_seconds", row.problem_bound.value}});
  }
  for (const Chance& chance : chances) {
    json["chances"].push_back({{"model", chance.of.model},
                               {"batch", chance.of.batch},
                               {"drawn", chance.drawn},
                               {"share_faster_than_found", chance.than_found}});
    auto& shares = json["chances"].back()["share_faster_than"];
    for (const auto& [name, share] : chance.shares) shares[name] = share;
  }
  return json.dump();
}

std::string sweep_page(const std::vector<SweepRow>& rows, const std::vector<Chance>& chances,
                       const std::string& budget) {
  std::string text = fmt::format(
      "# Where there is something to find\n\n"
      "Made by `autodist bench sweep`: AutoSync's cluster A (11 machines of one GPU) with other "
      "links and batches, in the simulator, uncalibrated; columns are those of "
      "[the comparison](search.md). Budget of each search: {}.\n\n"
      "| model | batch | Gbit/s | best system | ms | best builder | ms | searched, ms | gain over "
      "the system | ideal | gain on equal engine "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|\n",
      budget);
  for (const auto& [of, row] : rows) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} |\n",
                        of.of.model, of.of.batch, of.gbit_per_s, own_systems()[row.best_own()].name,
                        milliseconds(row.own[row.best_own()]), row.best_builder,
                        milliseconds(row.builder_step), milliseconds(row.found_step),
                        row.gain_over_own(), row.ideal_gain(), row.gain_on_equal_engine());
  }
  text +=
      "\n## Against chance\n\nStrategies drawn at random from the searched space, on cluster A as "
      "it is: the share that is faster than each builder's, on equal engine, and than the searched "
      "one.\n\n| model | batch | drawn |";
  std::string line = "|---|---|---|";
  if (!chances.empty()) {
    for (const auto& [name, share] : chances.front().shares) {
      text += " " + name.substr(0, name.find(":max_shards")) + " |";
      line += "---|";
    }
  }
  text += " searched |\n" + line + "---|\n";
  for (const Chance& chance : chances) {
    text += fmt::format("| {} | {} | {} |", chance.of.model, chance.of.batch, chance.drawn);
    for (const auto& [name, share] : chance.shares) {
      text += share < 0 ? " – |" : fmt::format(" {:.1f} % |", 100 * share);
    }
    text += fmt::format(" {:.1f} % |\n", 100 * chance.than_found);
  }
  return text;
}

}  // namespace autodist::studies
