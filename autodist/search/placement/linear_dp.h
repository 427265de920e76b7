// Contiguous pieces of one order: the best way to cut it over the devices, by dynamic programming
// ("DPL" of the NeurIPS 2020 paper). Good starts for a local search, and alone a fair answer.

#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

// Groups in the order in which `tasks` first meets one of their forward members. (Backward members
// come along: they share their colour.)
std::vector<std::uint32_t> group_order(const ThroughputProblem& problem, const TaskGraph& graph,
                                       const std::vector<std::uint32_t>& tasks);

// A topological order that goes on where it has just been: among the ready tasks a child of the
// latest one, ties drawn from `random`. Each draw is another way to unroll the graph's branches.
std::vector<std::uint32_t> unrolled(const TaskGraph& graph, std::mt19937_64& random);

// The assignment with the least largest load among those that cut `order` in one piece per device,
// accelerators of equal figures counting as one kind; nothing where memory forbids all of them.
// Groups that only CPUs can run stay out of the pieces, on the first CPU.
std::optional<std::vector<DeviceIndex>> cut_linearly(const ThroughputProblem& problem,
                                                     const std::vector<std::uint32_t>& order);

}  // namespace autodist::search::placement
