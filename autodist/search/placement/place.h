// One door to all placers: which objective, which devices, which placer, how long.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/search/placement/list_placers.h"
#include "autodist/search/placement/orders.h"
#include "autodist/search/placement/task_graph.h"
#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

enum class Objective : std::uint8_t {
  kMakespan,    // the time of one step
  kThroughput,  // the largest load of a device, steps being pipelined
  kProcessors   // makespan of tasks without communication on equal processors
};

struct PlaceRequest {
  Objective objective = Objective::kMakespan;
  std::vector<ListDevice> devices;  // at least one
  std::string placer = "portfolio";
  Order order = Order::kTopo;  // of the placers that follow one
  Seconds budget{10};
  // Counts of work in place of the budget: simulations (makespan), moves of the annealer
  // (throughput), list schedules (processors).
  std::optional<std::uint64_t> evaluations;
  std::uint64_t seed = 0;
  std::size_t threads = 0;  // 0: as many as the machine has
  bool placeto = true;      // simulate as Placeto does; else as our own mode does
};

struct PlaceResult {
  Placement placement;  // empty: nothing found that the memory allows
  double value = 0;     // the objective, in the graph's unit
  double bound = 0;     // no placement is below
  // By device. Memory is that of parameters and state; with Placeto's simulator, the outputs' peak.
  std::vector<DeviceLoad> devices;
  std::string found_by;
  std::uint64_t evaluations = 0;
  bool stopped_by_clock = false;  // then another run may differ

  [[nodiscard]] double gap() const { return bound > 0 ? value / bound - 1 : 0; }
};

// Names that `placer` may have for an objective.
std::vector<std::string> placer_names(Objective objective);

// The budget buys a count of evaluations by fixed rates that a machine of two cores keeps up with,
// so the same seed and budget give the same answer on any machine that is not slower; a slower one
// is stopped by `clock` at the budget and says so. Throws Error(kUsage) for an unknown placer,
// Error(kInfeasible) where a task fits no device.
PlaceResult place(const TaskGraph& graph, const PlaceRequest& request, const Clock& clock);

// What there is to say of a placement that somebody else found, as to its makespan: its simulated
// time, the bound, the devices' rows. REQUIRES: a device of `request` for every task.
PlaceResult described(const TaskGraph& graph, const PlaceRequest& request,
                      const Placement& placement);

}  // namespace autodist::search::placement
