#include "autodist/planning/placed_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/planning/placing.h"

namespace autodist::planning {
namespace {

namespace placement = search::placement;

constexpr std::uint64_t kMoves = 200'000;  // of annealing for throughput
constexpr double kSimulatedTasks = 2e6;    // in searching for the time of a step: seconds
constexpr Seconds kNoLimit{3600};          // counts end the search, so that it is the same again

// What people should know: the other stages do next to nothing.
bool is_in_one(const placement::Placement& placement, const placement::TaskGraph& tasks,
               std::size_t stages) {
  constexpr double kNearlyAll = 0.98;
  std::vector<double> work(stages);
  for (std::size_t i = 0; i < placement.size(); ++i) work[placement[i]] += tasks.tasks[i].cost;
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  return *std::max_element(work.begin(), work.end()) >= kNearlyAll * all;
}

std::optional<SimulatedPlan> in_stages(std::size_t stages, std::size_t replicas,
                                       const OnCluster& problem,
                                       const std::shared_ptr<const ir::Graph>& graph,
                                       const cluster::Cluster& cluster,
                                       const passes::Options& options,
                                       const search::Judge::Costs& costs, Seconds limit) {
  const placement::TaskGraph& tasks = problem.tasks;
  placement::PlaceRequest request;
  const bool pipelined = options.micro_batches > 1;
  request.objective =
      pipelined ? placement::Objective::kThroughput : placement::Objective::kMakespan;
  request.placeto = false;
  request.threads = 1;
  request.budget = limit;
  const double simulations = kSimulatedTasks / static_cast<double>(tasks.tasks.size());
  request.evaluations = pipelined ? kMoves : static_cast<std::uint64_t>(simulations) + 1;
  for (std::size_t i = 0; i < stages; ++i) {
    request.devices.push_back(problem.devices[i].figures);
  }
  placement::PlaceResult placed;
  try {
    placed = placement::place(tasks, request, SteadyClock());
  } catch (const Error& error) {  // an op that is larger than any device
    if (error.code() != ErrorCode::kInfeasible) throw;
  }
  if (placed.placement.empty()) return {};
  SimulatedPlan plan;
  plan.name = fmt::format("placed in {} stages{}", stages,
                          is_in_one(placed.placement, tasks, stages) ? " (nearly all in one)" : "");
  plan.strategy = placement_strategy(*graph, cluster, static_cast<std::uint32_t>(replicas), placed);
  plan.program = passes::rewrite(graph, plan.strategy, cluster, options, plan.name);
  plan.costs = costs(plan.program);
  plan.simulation = sim::simulate(plan.program, cluster, plan.costs);
  plan.expected = plan.simulation.step;
  return plan;
}

}  // namespace

std::optional<SimulatedPlan> faster_by_placement(const std::shared_ptr<const ir::Graph>& graph,
                                                 const cluster::Cluster& cluster,
                                                 const passes::Options& options,
                                                 const CostsInMicroBatches& costs, Seconds step,
                                                 Seconds limit, const std::function<bool()>& stop) {
  const std::vector<cluster::Place> ranks = cluster::computing_ranks_of(cluster);
  const OnCluster problem = on_cluster(*graph, cluster);
  const SteadyClock clock;
  const Seconds begun = clock.now();
  std::optional<SimulatedPlan> best;
  for (std::size_t stages = 2; stages <= ranks.size(); ++stages) {
    if (ranks.size() % stages != 0) continue;
    const Seconds left = limit > Seconds{} ? limit - (clock.now() - begun) : kNoLimit;
    if (left <= Seconds{} || (stop && stop())) break;
    passes::Options pipelined = options;
    pipelined.micro_batches = options.micro_batches * static_cast<std::int64_t>(stages);
    const auto costs_in = [&](const program::Program& program) {
      return costs(program, pipelined.micro_batches);
    };
    std::optional<SimulatedPlan> plan;
    try {
      plan = in_stages(stages, ranks.size() / stages, problem, graph, cluster, pipelined, costs_in,
                       left);
    } catch (const Error& error) {  // what the passes cannot place is no offer
      if (error.code() != ErrorCode::kInfeasible) throw;
    }
    if (!plan || !sim::fits(plan->simulation.memory)) continue;
    if (plan->simulation.step >= (best ? best->simulation.step : step)) continue;
    best = std::move(plan);
  }
  return best;
}

SimulatedPlan plan_by_placement(const std::shared_ptr<const ir::Graph>& graph,
                                const cluster::Cluster& cluster, const passes::Options& options,
                                const search::Judge::Costs& costs, const std::string& why) {
  const OnCluster problem = on_cluster(*graph, cluster);
  const std::size_t ranks = cluster::computing_ranks_of(cluster).size();
  std::optional<SimulatedPlan> best;
  double best_rate = 0;  // replicas' batches per second
  for (std::size_t stages = 2; stages <= ranks; ++stages) {
    if (ranks % stages != 0) continue;
    const std::size_t replicas = ranks / stages;
    std::optional<SimulatedPlan> plan =
        in_stages(stages, replicas, problem, graph, cluster, options, costs, kNoLimit);
    if (!plan || !sim::fits(plan->simulation.memory)) continue;
    const double rate = static_cast<double>(replicas) / plan->simulation.step.value;
    if (best && rate <= best_rate) continue;
    best = std::move(plan);
    best_rate = rate;
  }
  if (!best) {
    fail(ErrorCode::kInfeasible,
         "{} Nor does a placement of its ops on the {} ranks. Use a smaller batch, or more ranks.",
         why, ranks);
  }
  return std::move(*best);
}

}  // namespace autodist::planning
