#include "autodist/search/placement/task_graph.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "autodist/base/error.h"

namespace autodist::search::placement {

bool operator==(const Task& a, const Task& b) {
  const auto fields = [](const Task& t) {
    return std::tie(t.name, t.cost, t.cpu_cost, t.memory, t.colour, t.backward, t.inputs,
                    t.outputs);
  };
  return fields(a) == fields(b);
}

bool operator==(const TaskGraph& a, const TaskGraph& b) {
  return a.name == b.name && a.microseconds_per_unit == b.microseconds_per_unit &&
         a.tasks == b.tasks && a.stated == b.stated;
}

Neighbours neighbours_of(const TaskGraph& graph) {
  Neighbours result;
  result.children.resize(graph.tasks.size());
  result.parents.resize(graph.tasks.size());
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    for (const TaskInput& input : graph.tasks[i].inputs) {
      // Edges enter child by child, so a repeated one is the parent's latest.
      std::vector<std::uint32_t>& children = result.children[input.task.value];
      if (!children.empty() && children.back() == i) continue;
      children.push_back(i);
      result.parents[i].push_back(input.task.value);
    }
  }
  return result;
}

Groups groups_of(const TaskGraph& graph) {
  Groups groups;
  std::vector<std::uint32_t> of_colour;
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    const std::uint32_t colour = graph.tasks[i].colour;
    auto group = static_cast<std::uint32_t>(groups.members.size());
    if (colour != kNoColour) {
      if (colour >= of_colour.size()) of_colour.resize(colour + 1, kNoColour);
      if (of_colour[colour] == kNoColour) of_colour[colour] = group;
      group = of_colour[colour];
    }
    if (group == groups.members.size()) groups.members.emplace_back();
    groups.members[group].push_back(i);
    groups.of.push_back(group);
  }
  return groups;
}

std::vector<std::uint32_t> topological_order(const Neighbours& neighbours) {
  std::vector<std::uint32_t> places(neighbours.children.size());
  std::iota(places.begin(), places.end(), 0u);
  return topological_order(neighbours, places);
}

std::vector<std::uint32_t> topological_order(const Neighbours& neighbours,
                                             const std::vector<std::uint32_t>& rank) {
  using Ranked = std::pair<std::uint32_t, std::uint32_t>;  // rank, task
  std::priority_queue<Ranked, std::vector<Ranked>, std::greater<>> ready;
  std::vector<std::size_t> waits;
  for (std::uint32_t i = 0; i < rank.size(); ++i) {
    waits.push_back(neighbours.parents[i].size());
    if (waits.back() == 0) ready.emplace(rank[i], i);
  }
  std::vector<std::uint32_t> order;
  order.reserve(rank.size());
  while (!ready.empty()) {
    const std::uint32_t task = ready.top().second;
    ready.pop();
    order.push_back(task);
    for (const std::uint32_t child : neighbours.children[task]) {
      if (--waits[child] == 0) ready.emplace(rank[child], child);
    }
  }
  if (order.size() != rank.size()) order.clear();
  return order;
}

void add_backward_tasks(TaskGraph& graph, const std::vector<double>& costs) {
  const std::size_t count = graph.tasks.size();
  graph.tasks.resize(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    Task& backward = graph.tasks[count + i];
    backward.name = "b_" + graph.tasks[i].name;
    backward.cost = costs[i];
    backward.backward = true;
    backward.outputs = graph.tasks[i].outputs;
    backward.inputs.push_back({TaskId(i), 0});
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (const TaskInput& input : graph.tasks[i].inputs) {
      graph.tasks[count + input.task.value].inputs.push_back({TaskId(count + i), 0});
    }
  }
}

namespace {

void verify_numbers(const Task& task, const std::string& where) {
  const auto check = [&](const char* what, double value, bool may_be_infinite) {
    if (value >= 0 && (may_be_infinite || std::isfinite(value))) return;
    fail(ErrorCode::kUsage, "{}: {} of '{}' is {}, expected a number of at least 0", where, what,
         task.name, value);
  };
  check("the cost", task.cost, true);
  if (task.cpu_cost) check("the cost on a CPU", *task.cpu_cost, true);
  check("the memory", task.memory, false);
  for (const TaskOutput& output : task.outputs) {
    check("an output's size", output.bytes, false);
    if (output.transfer) check("an output's transfer time", *output.transfer, false);
  }
}

void verify_inputs(const TaskGraph& graph, const Task& task, const std::string& where) {
  for (const TaskInput& input : task.inputs) {
    if (input.task.value >= graph.tasks.size()) {
      fail(ErrorCode::kUsage, "{}: '{}' reads task {}, of {}", where, task.name, input.task.value,
           graph.tasks.size());
    }
    const Task& parent = graph.task(input.task);
    if (input.output >= parent.outputs.size()) {
      fail(ErrorCode::kUsage, "{}: '{}' reads output {} of '{}', which has {}", where, task.name,
           input.output, parent.name, parent.outputs.size());
    }
  }
}

}  // namespace

void verify(const TaskGraph& graph, const std::string& where) {
  if (graph.tasks.empty()) fail(ErrorCode::kUsage, "{}: no tasks, at least one expected", where);
  std::unordered_set<std::string> names;
  for (const Task& task : graph.tasks) {
    if (!names.insert(task.name).second) {
      fail(ErrorCode::kUsage, "{}: two tasks are named '{}'. Give each its own name.", where,
           task.name);
    }
    verify_numbers(task, where);
    verify_inputs(graph, task, where);
  }
  if (topological_order(neighbours_of(graph)).empty()) {
    fail(ErrorCode::kUsage,
         "{}: the tasks depend on each other in a circle. Take an edge out of it.", where);
  }
}

}  // namespace autodist::search::placement
