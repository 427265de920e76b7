// What a placer places: tasks with costs, the tensors between them, and what may not be parted.
//
// One type for every source: our own captured steps, and the published formats (readers.h). Times
// are in the graph's own unit, `microseconds_per_unit` says which; sizes are bytes.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/id.h"

namespace autodist::search::placement {

using TaskId = Id<struct TaskTag>;

// Index of a device among those that a graph is placed on.
using DeviceIndex = std::uint16_t;

// The device of every task.
using Placement = std::vector<DeviceIndex>;

// What a task reads: an output of another. What only waits for another reads its output 0.
struct TaskInput {
  TaskId task;
  std::uint32_t output = 0;

  friend bool operator==(const TaskInput& a, const TaskInput& b) {
    return a.task == b.task && a.output == b.output;
  }
};

struct TaskOutput {
  double bytes = 0;
  // Time for the tensor to cross a link, where the file states it; else it follows from `bytes`.
  std::optional<double> transfer;

  friend bool operator==(const TaskOutput& a, const TaskOutput& b) {
    return a.bytes == b.bytes && a.transfer == b.transfer;
  }
};

inline constexpr double kNotSupported = std::numeric_limits<double>::infinity();
// The time of what does not happen.
inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr std::uint32_t kNoColour = std::numeric_limits<std::uint32_t>::max();

// Time of an output on a link that carries so many bytes per unit of time.
inline double transfer_time(const TaskOutput& output, double bytes_per_unit) {
  return output.transfer ? *output.transfer : output.bytes / bytes_per_unit;
}

struct Task {
  std::string name;
  double cost = 0;                   // on an accelerator of speed 1; kNotSupported: not there
  std::optional<double> cpu_cost;    // on a CPU; nothing: as `cost`
  double memory = 0;                 // bytes that stay on its device: parameters and state
  std::uint32_t colour = kNoColour;  // tasks of one colour stay together
  bool backward = false;
  std::vector<TaskInput> inputs;
  std::vector<TaskOutput> outputs;

  friend bool operator==(const Task& a, const Task& b);
};

// Time of a task on a device (ListDevice or ThroughputDevice), whose speed costs are divided by.
template <typename Device>
double time_on(const Task& task, const Device& device) {
  return (device.cpu ? task.cpu_cost.value_or(task.cost) : task.cost) / device.speed;
}

// Devices that the file itself asks for, as the published throughput instances do.
struct StatedDevices {
  std::uint32_t accelerators = 0;
  std::uint32_t cpus = 0;
  double memory = 0;  // bytes of one accelerator

  friend bool operator==(const StatedDevices& a, const StatedDevices& b) {
    return a.accelerators == b.accelerators && a.cpus == b.cpus && a.memory == b.memory;
  }
};

struct TaskGraph {
  std::string name;
  double microseconds_per_unit = 1;
  std::vector<Task> tasks;  // in the order of the file: traversals start from it
  std::optional<StatedDevices> stated;

  [[nodiscard]] const Task& task(TaskId id) const { return tasks[id.value]; }
  friend bool operator==(const TaskGraph& a, const TaskGraph& b);
};

// For every task its neighbours, each once. Children stand in the order in which the edges enter
// the graph when the tasks are read one after the other (a NetworkX digraph's order).
struct Neighbours {
  std::vector<std::vector<std::uint32_t>> children;
  std::vector<std::vector<std::uint32_t>> parents;
};
Neighbours neighbours_of(const TaskGraph& graph);

// What moves together: the tasks of a colour, and single tasks; in the order of their first tasks.
struct Groups {
  std::vector<std::vector<std::uint32_t>> members;  // tasks by group
  std::vector<std::uint32_t> of;                    // group by task
};
Groups groups_of(const TaskGraph& graph);

// Adds a backward task "b_NAME" for every forward one, in their order: it waits for the forward one
// and for the backward ones of its children, and makes as much. `costs`: what they cost.
void add_backward_tasks(TaskGraph& graph, const std::vector<double>& costs);

// Throws Error(kUsage), prefixed with `where`, naming the first thing that is wrong: no tasks, an
// input out of range, a negative or missing number, a name twice, a cycle.
void verify(const TaskGraph& graph, const std::string& where);

// Tasks in a topological order; among those that are ready the one of the least rank goes first, or
// without ranks the first of the file. An empty answer says that there is a cycle (or no task).
std::vector<std::uint32_t> topological_order(const Neighbours& neighbours);
std::vector<std::uint32_t> topological_order(const Neighbours& neighbours,
                                             const std::vector<std::uint32_t>& rank);

}  // namespace autodist::search::placement
