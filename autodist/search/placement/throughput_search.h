// Searches for the throughput objective, from one device to a portfolio of all.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/search/placement/orders.h"
#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

struct ThroughputSearchOptions {
  // Moves of the annealer over all lanes. They, not the clock, end a search.
  std::uint64_t moves = 20'000'000;
  std::uint64_t seed = 0;
  std::size_t threads = 0;  // 0: as many as the machine has
  // Asked often, from any thread; true ends the search early, and the answer is then not
  // reproducible.
  std::function<bool()> stop;
};

struct ThroughputAnswer {
  std::vector<DeviceIndex> assignment;  // of the groups
  double largest_load = kNotSupported;  // kNotSupported: nothing found that fits the memory
  std::string found_by;
  std::uint64_t moves = 0;
  bool stopped = false;  // by options.stop
};

// An assignment with its largest load.
ThroughputAnswer judged(const ThroughputProblem& problem, std::vector<DeviceIndex> assignment,
                        std::string found_by);

// Everything on the device where the sum is least and that has the memory.
ThroughputAnswer place_on_one(const ThroughputProblem& problem);

// Pieces of one order (linear_dp.h).
ThroughputAnswer place_linearly(const ThroughputProblem& problem, const TaskGraph& graph,
                                Order order, std::uint64_t seed);

// From everything on one device: visits the groups along the order, each goes where the largest
// load is least (then the sum of the two loads' squares), until a whole visit changes nothing.
ThroughputAnswer descend_along(const ThroughputProblem& problem, const TaskGraph& graph,
                               Order order, std::uint64_t seed);

// Annealing from everything on one device and from tasks dealt by free memory, in lanes with their
// own generators and temperatures; the best of all.
ThroughputAnswer anneal_in_lanes(const ThroughputProblem& problem,
                                 const ThroughputSearchOptions& options);

// Linear pieces along all orders and random unrollings, ideals where they are few, then rounds of
// annealing in eight lanes that share their best. Never worse than any of its members with the same
// options.
ThroughputAnswer throughput_portfolio(const ThroughputProblem& problem, const TaskGraph& graph,
                                      const ThroughputSearchOptions& options);

}  // namespace autodist::search::placement
