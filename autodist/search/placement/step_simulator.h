// What a search for a short step needs of a simulator.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// What happened in a simulated step, per task.
struct Timeline {
  std::vector<double> start;
  std::vector<double> ready;  // its last input was there
  // The parent whose output came last (itself where there is none), and the task before it on its
  // device (itself where it was the first): what it waited for is one of the two.
  std::vector<std::uint32_t> last_parent;
  std::vector<std::uint32_t> before;
  std::uint32_t last_task = 0;  // whose end, or whose transfer, is the end of the step

  void resize(std::size_t tasks) {
    start.resize(tasks);
    ready.resize(tasks);
    last_parent.resize(tasks);
    before.resize(tasks);
  }
};

// A device begins to hold some bytes, or frees them.
struct HeldChange {
  double time;
  bool frees;
  double bytes;
};
// The most that it holds, which holds `held` before the changes. Of one time those that free are
// last.
double most_held(double held, std::vector<HeldChange> changes);

class StepSimulator {
 public:
  virtual ~StepSimulator() = default;

  // The time of a step, or kNotSupported where the placement cannot run (memory).
  virtual double run(const Placement& placement) = 0;
  // Of the last run that did not end in kNotSupported.
  [[nodiscard]] virtual const Timeline& timeline() const = 0;
};

}  // namespace autodist::search::placement
