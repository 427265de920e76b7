// Simulated annealing over assignments for the throughput objective.
//
// The largest load alone is a plateau almost everywhere, so the energy is the sum over devices of
// (load / scale)^16: the busiest device decides, and the others still count. Moves keep neighbours
// together: a group to the device of one it shares a tensor with, a cut of an order shifted, a
// cluster grown along tensors, a swap.

#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

struct AnnealingOptions {
  std::uint64_t moves = 1'000'000;  // tried, accepted or not
  double hot = 0.3;                 // first temperature, in units of the energy of one full load
  double cold = 0.001;              // last one; it falls geometrically
  // Asked every few thousand moves; true ends the search early.
  std::function<bool()> stop;
};

struct Annealed {
  std::vector<DeviceIndex> assignment;
  double largest_load = kNotSupported;  // kNotSupported: no assignment met that fits the memory
  std::uint64_t moves = 0;
};

// From `start`, with cuts of the orders in `orders`. The best assignment met that fits the memory;
// the same generator state gives the same answer unless `stop` says true.
Annealed anneal(const ThroughputProblem& problem, const std::vector<DeviceIndex>& start,
                const std::vector<std::vector<std::uint32_t>>& orders,
                const AnnealingOptions& options, std::mt19937_64& random);

}  // namespace autodist::search::placement
