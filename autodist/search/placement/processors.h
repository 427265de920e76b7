// Tasks with precedence on equal processors without communication (P | prec | Cmax), to the end: an
// answer and a proof of how far from the optimum it can be. Times are integers, as in the Standard
// Task Graph Set.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

using Ticks = std::int32_t;

// Tasks in a topological order; neighbours by index.
struct ProcessorProblem {
  // Throws Error(kUsage) where a cost is no integer below 2^20, or the sum of costs is not below
  // 2^30. REQUIRES: a verified graph, processors > 0.
  ProcessorProblem(const TaskGraph& graph, std::size_t processors);

  [[nodiscard]] std::size_t size() const { return time.size(); }
  // This problem with all arcs turned around, and so the order of its tasks reversed.
  [[nodiscard]] ProcessorProblem reversed() const;

  std::size_t processors;
  std::vector<Ticks> time;
  std::vector<std::vector<std::uint32_t>> parents;
  std::vector<std::vector<std::uint32_t>> children;
  std::vector<std::uint32_t> task;  // index in the graph

 private:
  ProcessorProblem() = default;
};

// Start of every task of the problem.
using Starts = std::vector<Ticks>;
Ticks length_of(const ProcessorProblem& problem, const Starts& starts);

// What is wrong with a schedule, or "": a task before its parents' end, more tasks at a time than
// processors.
std::string fault_of(const ProcessorProblem& problem, const Starts& starts);

// A processor for every task of a faultless schedule.
std::vector<DeviceIndex> processors_of(const ProcessorProblem& problem, const Starts& starts);

// Longest path from a task's start to the end, itself included.
std::vector<Ticks> bottom_levels(const ProcessorProblem& problem);

// Parallel list scheduling: at every time the ready tasks of the largest keys start.
Starts list_schedule(const ProcessorProblem& problem, const std::vector<double>& keys);

// A length that no schedule undercuts: critical path, work / processors, heads and tails raised by
// the work of ancestors and descendants, and intervals that hold more work than the processors can
// do (energetic reasoning; Fernandez and Bussell 1973, Baptiste, Le Pape and Nuijten 1999), the
// latter as a proof that each smaller length is impossible.
Ticks processor_bound(const ProcessorProblem& problem);

struct ProcessorAnswer {
  Starts starts;
  Ticks length = 0;
  Ticks bound = 0;
  std::string found_by;
  [[nodiscard]] bool optimal() const { return length == bound; }
};

struct ProcessorSearchOptions {
  std::uint64_t seed = 0;
  std::uint64_t schedules = 200'000;  // list schedules of the randomised search
  std::uint64_t nodes = 2'000'000;    // of the branch and bound, in all its runs
  std::function<bool()> stop;         // asked often; true ends the search early
};

// The list schedule by bottom levels.
ProcessorAnswer schedule_by_levels(const ProcessorProblem& problem);

// b-level lists, randomised lists forwards and backwards with justification, and branch and bound
// on the lengths in between, until the bound is met or the options are used up.
ProcessorAnswer schedule_on_processors(const ProcessorProblem& problem,
                                       const ProcessorSearchOptions& options);

}  // namespace autodist::search::placement
