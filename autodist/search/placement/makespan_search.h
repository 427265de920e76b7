// Searches for a placement with a short step, judged by a simulator. Their currency is the number
// of simulations, so that searches can be compared with each other and with a learned policy.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autodist/search/placement/list_placers.h"
#include "autodist/search/placement/orders.h"
#include "autodist/search/placement/step_simulator.h"

namespace autodist::search::placement {

// What is placed: a graph, the devices as the list placers see them, and the judge. The groups of
// tasks that move together come from the colours.
struct MakespanProblem {
  const TaskGraph* graph = nullptr;
  std::vector<ListDevice> devices;
  // A simulator for one thread.
  std::function<std::unique_ptr<StepSimulator>()> simulator;
};

struct MakespanOptions {
  std::uint64_t simulations = 16'100;  // the paper's protocol for 321 groups
  std::uint64_t seed = 0;
  std::function<bool()> stop;  // asked often; true ends the search early
};

struct MakespanAnswer {
  Placement placement;
  double time = kNotSupported;  // kNotSupported: nothing found that can run
  std::string found_by;
  std::uint64_t simulations = 0;
  bool stopped = false;  // by options.stop
};

// Simulates placements, counts them and remembers the best one.
class MakespanJudge {
 public:
  // `options` must outlive it.
  MakespanJudge(const MakespanProblem& problem, const MakespanOptions& options)
      : simulator_(problem.simulator()), options_(options) {}

  // The time of the placement, which the search `found_by` tries.
  double operator()(const Placement& placement, const char* found_by);
  // Whether the search must end.
  [[nodiscard]] bool over();
  [[nodiscard]] const MakespanAnswer& best() const { return best_; }
  [[nodiscard]] const Timeline& timeline() const { return simulator_->timeline(); }

 private:
  std::unique_ptr<StepSimulator> simulator_;
  const MakespanOptions& options_;
  MakespanAnswer best_;
};

// From everything on the first device, along an order: each task in turn goes to the device with
// the shortest step; `visits` of all tasks, fewer when one changes nothing (the papers' walk with
// arg-min in place of a policy).
MakespanAnswer coordinate_descent(const MakespanProblem& problem, Order order, std::size_t visits,
                                  const MakespanOptions& options);

// All on one device; the best device.
MakespanAnswer place_on_one(const MakespanProblem& problem);

// By one rule of list_placers.h, as published (no noise).
MakespanAnswer place_by_rule(const MakespanProblem& problem, ListRule rule);

// Random keys: a genome holds a priority per task and is decoded by list scheduling in that order;
// the order is what evolves (biased random-key genetic algorithm, Gonçalves and Resende 2011).
MakespanAnswer evolve_keys(const MakespanProblem& problem, const MakespanOptions& options);

// From everything on the first device: moves of tasks, clusters, stretches of a topological order
// and of what the critical path waits for, accepted as in annealing.
MakespanAnswer anneal_step(const MakespanProblem& problem, const MakespanOptions& options);

// How many searches the portfolio on so many devices is. Each begins with what one on fewer found:
// on one less of four or fewer, on half of more, and so down to two.
std::size_t portfolio_stages(std::size_t devices);

// One device, every list rule with many cautions and noises, then annealing of the best in turns:
// on the first two devices, then on more, with as many simulations in every stage. With equally
// many in a stage the answer is never worse than that on the fewer devices of any stage before.
MakespanAnswer makespan_portfolio(const MakespanProblem& problem, const MakespanOptions& options);

}  // namespace autodist::search::placement
