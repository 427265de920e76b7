// Random task graphs, for tests that state a law over all graphs.

#pragma once

#include <random>
#include <string>

#include "autodist/search/placement/random.h"
#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// `count` tasks named t0, t1, …; about one edge per pair of near tasks; costs up to 1,000, tensors
// of up to `most_bytes` bytes, some tasks free, some with two outputs, some of one colour.
inline TaskGraph random_task_graph(std::mt19937_64& random, std::uint32_t count,
                                   std::uint32_t most_bytes = 8'000'000) {
  TaskGraph graph;
  graph.name = "random";
  for (std::uint32_t i = 0; i < count; ++i) {
    Task task;
    task.name = "t" + std::to_string(i);
    task.cost = below(4, random) == 0 ? 0 : below(1000, random);
    task.memory = below(100, random);
    if (below(5, random) == 0) task.colour = below(1 + count / 5, random);
    for (std::uint32_t output = 0; output <= below(2, random); ++output) {
      task.outputs.push_back({static_cast<double>(below(most_bytes, random)), std::nullopt});
    }
    for (std::uint32_t parent = 0; parent < i; ++parent) {
      if (below(std::min(i, 6u) + 1, random) > 1) continue;
      const auto outputs = static_cast<std::uint32_t>(graph.tasks[parent].outputs.size());
      task.inputs.push_back({TaskId(parent), below(outputs, random)});
    }
    graph.tasks.push_back(std::move(task));
  }
  return graph;
}

// Calls visit(placement) for every placement of `tasks` tasks on `devices`.
template <typename Visit>
void for_each_placement(std::size_t tasks, std::size_t devices, Visit visit) {
  Placement placement(tasks, 0);
  for (;;) {
    visit(static_cast<const Placement&>(placement));
    std::size_t i = 0;
    while (i < tasks && ++placement[i] == devices) placement[i++] = 0;
    if (i == tasks) return;
  }
}

}  // namespace autodist::search::placement
