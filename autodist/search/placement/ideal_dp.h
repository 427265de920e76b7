// Contiguous pieces over all orders at once: dynamic programming over ideals, the sets of groups
// that hold all predecessors of their members ("Efficient Algorithms for Device Placement of DNN
// Graph Operators", NeurIPS 2020, section 4). Optimal among contiguous placements, where ideals are
// few.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "autodist/search/placement/throughput.h"

namespace autodist::search::placement {

// The assignment with the least largest load among those that give every device the difference of
// two nested ideals. Precedence is that of the forward tasks; backward ones come along with their
// colour. Nothing where there are more than `most_ideals`, where colours close a circle, where a
// group has backward tasks alone, or where memory forbids all such placements.
std::optional<std::vector<DeviceIndex>> cut_by_ideals(const ThroughputProblem& problem,
                                                      const TaskGraph& graph,
                                                      std::size_t most_ideals);

}  // namespace autodist::search::placement
