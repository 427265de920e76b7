// REINFORCE on one graph, in the protocol of Wang, Payberah, Hagos and Vlassov (arXiv 2201.09676)
// after Placeto: an episode visits every task once, in the order asked for; the policy names its
// device, the simulated step time before minus after is the reward, and the baseline of a visit is
// its mean return in earlier episodes. Every episode starts from the best placement so far, the
// first from all tasks on device 0; every fifth takes the likeliest devices and teaches nothing.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autodist/search/placement/orders.h"
#include "autodist/search/placement/task_graph.h"
#include "tools/learned_placer/policy.h"

namespace autodist::learned {

struct TrainingOptions {
  std::size_t devices = 3;
  search::placement::Order order = search::placement::Order::kTopo;
  std::uint32_t episodes = 50;
  std::uint64_t seed = 0;  // of the visits' draws (the policy has its own)
  bool learns = true;  // else the policy stays as it is: what is found then is luck's, a control
};

struct Trained {
  search::placement::Placement placement;  // the best seen
  double time = 0;                         // of its step, µs
  std::uint64_t simulations = 0;
  std::vector<double> best_after;  // by episode
};

// Trains `policy` and returns the best placement that it came by. Deterministic on one thread.
// `done` is told the episode and the best time after each. Simulates once per visit and once per
// episode. REQUIRES: a verified graph whose costs are finite and not all 0.
Trained train(const search::placement::TaskGraph& graph, Policy& policy,
              const TrainingOptions& options,
              const std::function<void(std::uint32_t, double)>& done = {});

}  // namespace autodist::learned
