// Coarsen, place, refine: groups that share dear tensors are merged level by level, the coarsest
// graph is annealed from scratch, and every finer one from the placement of the coarser (the scheme
// of METIS; Karypis and Kumar 1998).

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

// An assignment of the groups; the same seed gives the same. It may exceed the memory where the
// search met nothing that fits.
std::vector<DeviceIndex> place_multilevel(const ThroughputProblem& problem, std::uint64_t seed);

}  // namespace autodist::search::placement
