#include "autodist/app/data_sets.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/statistics.h"
#include "autodist/planning/archive.h"
#include "autodist/search/learning/propose.h"

namespace autodist::app {
namespace {

using Json = nlohmann::ordered_json;

struct CellStats {
  std::string model;
  std::string cluster;
  std::size_t points = 0;
  std::size_t ranks = 0;
  double fastest = 0;
  double median = 0;
  double slowest = 0;
  double spread = 0;     // median over plans: interquartile range of the steps over their median
  double simulator = 0;  // share of pairs in the measured order
  double ratio = 0;      // median of measured over simulated
};

double spread_of(const planning::Runtimes& runtimes) {
  std::vector<double> steps;
  for (const Seconds step : runtimes.steps) steps.push_back(step.value);
  const double middle = quantile(steps, 0.5);
  return middle > 0 ? (quantile(steps, 0.75) - quantile(steps, 0.25)) / middle : 0;
}

std::vector<CellStats> stats_of(const std::vector<planning::DataCell>& cells,
                                const planning::MeasuredPlans& plans) {
  std::vector<CellStats> all;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    CellStats stats;
    stats.model = cells[i].model;
    stats.cluster = cells[i].cluster;
    stats.points = cells[i].points.size();
    stats.ranks = cluster::ranks_of(cells[i].machines).size();
    std::vector<double> steps;
    std::vector<double> spreads;
    for (const planning::DataPoint& point : cells[i].points) {
      steps.push_back(point.step().value);
      spreads.push_back(spread_of(point.runtimes));
    }
    stats.fastest = quantile(steps, 0);
    stats.median = quantile(steps, 0.5);
    stats.slowest = quantile(steps, 1);
    stats.spread = quantile(spreads, 0.5);
    std::vector<search::Sample> own;
    std::vector<double> scores;
    std::vector<double> ratios;
    for (const search::Sample& sample : plans.samples) {
      if (sample.cell != i || sample.simulated <= 0) continue;
      own.push_back(sample);
      scores.push_back(sample.simulated);
      ratios.push_back(sample.measured / sample.simulated);
    }
    stats.simulator = search::pairwise_accuracy(own, scores).share();
    stats.ratio = quantile(ratios, 0.5);
    all.push_back(std::move(stats));
  }
  return all;
}

}  // namespace

std::string stats_table(const std::vector<planning::DataCell>& cells,
                        const planning::MeasuredPlans& plans) {
  std::string text = fmt::format(
      "{:<20} {:<24} {:>6} {:>5} {:>10} {:>10} {:>10} {:>7} {:>9} {:>9}\n", "model", "cluster",
      "points", "ranks", "fastest", "median", "slowest", "spread", "simulator", "measured");
  text += fmt::format("{:>115} {:>9}\n", "in order", "over sim");
  std::size_t points = 0;
  for (const CellStats& stats : stats_of(cells, plans)) {
    points += stats.points;
    text += fmt::format(
        "{:<20} {:<24} {:>6} {:>5} {:>10} {:>10} {:>10} {:>5.0f} % {:>7.1f} % {:>9.2f}\n",
        stats.model, stats.cluster, stats.points, stats.ranks, to_string(Seconds(stats.fastest)),
        to_string(Seconds(stats.median)), to_string(Seconds(stats.slowest)), 100 * stats.spread,
        100 * stats.simulator, stats.ratio);
  }
  return text + fmt::format("{} points in {} cells\n", points, cells.size());
}

std::string stats_json(const std::vector<planning::DataCell>& cells,
                       const planning::MeasuredPlans& plans) {
  Json json = Json::array();
  for (const CellStats& stats : stats_of(cells, plans)) {
    json.push_back({{"model", stats.model},
                    {"cluster", stats.cluster},
                    {"points", stats.points},
                    {"ranks", stats.ranks},
                    {"fastest_step_seconds", stats.fastest},
                    {"median_step_seconds", stats.median},
                    {"slowest_step_seconds", stats.slowest},
                    {"spread_share", stats.spread},
                    {"simulator_pairwise_accuracy", stats.simulator},
                    {"measured_over_simulated", stats.ratio}});
  }
  return json.dump();
}

std::string evaluation_table(const std::vector<search::EvaluationRow>& rows) {
  std::string text = fmt::format("{:<32} {:>6} {:>6}  {:<18} {:>8} {:>8} {:>10}\n", "known before",
                                 "trials", "cells", "ranker", "accuracy", "pairs", "regret");
  for (const search::EvaluationRow& row : rows) {
    for (const search::RankerResult& result : row.rankers) {
      text += fmt::format("{:<32} {:>6} {:>6}  {:<18} {:>8.3f} {:>8} {:>8.1f} %\n",
                          name_of(row.known), row.trials, row.cells, result.ranker,
                          result.accuracy.share(), result.accuracy.pairs, 100 * result.regret);
    }
  }
  return text;
}

std::string evaluation_json(const std::vector<search::EvaluationRow>& rows) {
  Json json = Json::array();
  for (const search::EvaluationRow& row : rows) {
    for (const search::RankerResult& result : row.rankers) {
      json.push_back({{"known", name_of(row.known)},
                      {"trials", row.trials},
                      {"cells", row.cells},
                      {"ranker", result.ranker},
                      {"pairwise_accuracy", result.accuracy.share()},
                      {"pairs", result.accuracy.pairs},
                      {"regret_share", result.regret}});
    }
  }
  return json.dump();
}

std::string evaluation_page(const std::vector<search::EvaluationRow>& rows,
                            const planning::MeasuredPlans& plans, const std::string& command) {
  std::string text = fmt::format(
      "# Rankers of plans\n\nMade by `{}`, on {} plans of {} models and clusters.\n\n*Known "
      "before* is what the rankers were trained on beside the trials: nothing, or other cells "
      "(a cell is a model on a cluster). *Trials* are plans of the cell itself, drawn at "
      "random and trained on; *accuracy* is the share of pairs of its other plans that are in "
      "the measured order, pairs within {:.0f} % of each other left out. *Regret* is how much "
      "slower than the cell's fastest plan the pick is: the fastest measured one of as many "
      "plans as there are trials, those that the ranker puts first beforehand; mean over "
      "cells, and over orders of plans with one score. Rankers: AutoSync's linear one on its "
      "twelve features, AutoSync's score (bytes over bandwidth), the simulator alone, and the "
      "simulator with the learned residual; beside them, as a control, one score for all plans "
      "(equal scores are half right) and scores drawn at random; RankRNN, where it stands, is "
      "AutoSync's recurrent one.\n\n"
      "| known before | trials | cells | ranker | accuracy | pairs | regret |\n"
      "|---|---|---|---|---|---|---|\n",
      command, plans.samples.size(), plans.models.size(), 100 * search::kAlike);
  for (const search::EvaluationRow& row : rows) {
    for (const search::RankerResult& result : row.rankers) {
      text += fmt::format("| {} | {} | {} | {} | {:.3f} | {} | {:.1f} % |\n", name_of(row.known),
                          row.trials, row.cells, result.ranker, result.accuracy.share(),
                          result.accuracy.pairs, 100 * result.regret);
    }
  }
  return text;
}

std::size_t generate_simulated(const std::string& folder, const SimulatedDataSet& wanted,
                               const std::function<bool()>& stop,
                               const std::function<void(const std::string&)>& done) {
  std::vector<std::string> files = wanted.clusters;
  if (files.empty()) {
    files = {planning::shipped_clusters() + "/autosync-a.yml",
             planning::shipped_clusters() + "/autosync-b.yml"};
  }
  std::size_t written = 0;
  std::set<std::pair<std::string, std::string>> cells;
  for (const std::string& model : wanted.models) {
    const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(model));
    for (const std::string& file : files) {
      planning::DataCell cell;
      cell.model = graph->name;
      cell.cluster = "simulated-" + std::filesystem::path(file).stem().string();
      cell.graph = graph;
      cell.machines = cluster::read_cluster(file);
      if (!cells.insert({cell.model, cell.cluster}).second) {
        fail(ErrorCode::kUsage,
             "dataset generate: {} with {}: another one is {}/{} already, by its name. Rename it.",
             model, file, cell.model, cell.cluster);
      }
      planning::write_cell(folder, cell);
      std::size_t number = 0;
      for (search::Proposal& each :
           search::propose(graph, cell.machines, {}, wanted.points, wanted.seed)) {
        if (stop && stop()) return written;
        const program::Program program =
            passes::rewrite(graph, each.strategy, cell.machines, {.verify_each = false}, each.name);
        const sim::Simulation simulation =
            sim::simulate(program, cell.machines, sim::cost_model(program, cell.machines));
        each.strategy.id = fmt::format("s{}-{:05}", wanted.seed, number++);
        planning::write_point(folder, cell, each.strategy, {simulation.step, {}});
        ++written;
      }
      done(fmt::format("{} on {}: {} plans", cell.model, cell.cluster, number));
    }
  }
  return written;
}

}  // namespace autodist::app
