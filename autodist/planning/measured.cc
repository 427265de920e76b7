#include "autodist/planning/measured.h"

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/passes/pipeline.h"

namespace autodist::planning {
namespace {

void simulate_point(const DataCell& cell, const strategy::Strategy& strategy,
                    const CellCosts& costs, search::Sample& sample) {
  const bool described = std::any_of(
      cell.machines.nodes.begin(), cell.machines.nodes.end(), [](const cluster::Node& node) {
        return !node.gpus.empty() && !node.gpus.front().figures.kind.empty();
      });
  passes::Options options;
  options.cpu_only = !described;  // what was measured here was measured on CPUs
  options.verify_each = false;
  const program::Program program =
      passes::rewrite(cell.graph, strategy, cell.machines, options, "data set");
  const sim::Simulation simulation = sim::simulate(
      program, cell.machines,
      costs ? costs(program, cell.machines) : sim::cost_model(program, cell.machines));
  sample.simulated = simulation.step.value;
  sample.features = search::plan_features(strategy, program, cell.machines, simulation);
}

}  // namespace

MeasuredPlans measured_plans(const std::vector<DataCell>& cells, std::vector<std::string>& warnings,
                             const CellCosts& costs) {
  MeasuredPlans plans;
  for (const DataCell& cell : cells) {
    std::size_t failed = 0;
    std::string reason;
    for (std::size_t i = 0; i < cell.points.size(); ++i) {
      const DataPoint& point = cell.points[i];
      search::Sample sample;
      sample.cell = plans.models.size();
      sample.point = i;
      sample.measured = point.step().value;
      if (sample.measured <= 0) continue;
      sample.paper = search::paper_features(point.strategy, *cell.graph, cell.machines);
      // Servers work beside each other, groups one after another.
      sample.analytic = std::max(sample.paper[0], sample.paper[9]);
      try {
        simulate_point(cell, point.strategy, costs, sample);
      } catch (const Error& error) {
        ++failed;
        reason = error.what();
      }
      plans.samples.push_back(std::move(sample));
    }
    if (failed > 0) {
      warnings.push_back(fmt::format("{}/{}: {} of {} points cannot be simulated: {}", cell.model,
                                     cell.cluster, failed, cell.points.size(), reason));
    }
    plans.models.push_back(cell.model);
    plans.clusters.push_back(cell.cluster);
  }
  return plans;
}

search::Judge::Correct correction(search::Residual residual, double bias,
                                  const cluster::Cluster& cluster) {
  return [residual = std::move(residual), bias, &cluster](const strategy::Strategy& strategy,
                                                          const program::Program& program,
                                                          const sim::Simulation& simulation) {
    const auto features = search::plan_features(strategy, program, cluster, simulation);
    return residual.correct(features, simulation.step) * bias;
  };
}

}  // namespace autodist::planning
