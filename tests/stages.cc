#include "tests/stages.h"

#include <algorithm>
#include <map>
#include <random>

#include "autodist/base/clock.h"
#include "autodist/search/placement/from_graph.h"
#include "autodist/search/placement/place.h"

namespace autodist::testing_jobs {

Placer anywhere(std::uint32_t seed) {
  return [seed](const ir::Graph& graph, std::uint32_t stages) {
    std::mt19937 random(seed);
    std::map<std::uint32_t, std::uint32_t> of_colour;
    std::vector<std::uint32_t> stage_of;
    for (const auto& task : search::placement::task_graph_of(graph, graph.example_batch).tasks) {
      const auto stage = static_cast<std::uint32_t>(random() % stages);
      const bool free = task.colour == search::placement::kNoColour;
      stage_of.push_back(free ? stage : of_colour.emplace(task.colour, stage).first->second);
    }
    return stage_of;
  };
}

std::vector<std::uint32_t> balanced(const ir::Graph& graph, std::uint32_t stages) {
  using namespace search::placement;
  const TaskGraph tasks = task_graph_of(graph, graph.example_batch);
  double memory = 0;
  double largest = 0;
  for (const Task& task : tasks.tasks) {
    memory += task.memory;
    largest = std::max(largest, task.memory);
  }
  PlaceRequest request;
  request.objective = Objective::kThroughput;
  ListDevice device;
  device.memory = std::max(1.3 * memory / stages, 1.1 * largest);
  device.bytes_per_unit = 1e4;
  request.devices.assign(stages, device);
  request.evaluations = 20'000;
  request.placeto = false;
  request.threads = 1;
  const PlaceResult result = place(tasks, request, SteadyClock());
  return {result.placement.begin(), result.placement.end()};
}

strategy::Strategy strategy_of(const ir::Graph& graph, const cluster::Cluster& cluster,
                               std::uint32_t stages, const Placer& placer) {
  strategy::Strategy strategy;
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    strategy.replicas.push_back(cluster::device_name(cluster, place));
  }
  std::vector<std::uint32_t> stage_of(graph.ops.size());
  if (stages > 1) {
    stage_of = placer(graph, stages);
    strategy.placement =
        strategy::Placement{strategy.replicas, stages, strategy::scopes_of(graph, stage_of)};
  }
  for (const ir::Variable& variable : graph.variables) {
    const auto& op = variable.first_use ? variable.first_use : variable.gradient_complete;
    strategy::NodeConfig node;
    node.name = strategy::node_name(variable.name);
    node.synchronizer = strategy::PsSynchronizer{strategy.replicas[op ? stage_of[op->value] : 0]};
    strategy.nodes.push_back(node);
  }
  return strategy;
}

}  // namespace autodist::testing_jobs
