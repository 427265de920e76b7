// A step time that no placement undercuts, with communication.

#pragma once

#include <vector>

#include "autodist/search/placement/list_placers.h"
#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// Critical path and work / devices; intervals; and transfers that cannot be avoided, as a proof by
// contradiction: if a step were to end by a deadline, two tasks whose separation would make some
// path between them too long must share a device; tasks that share one run one after the other,
// which makes paths longer still and binds more tasks; once a device holds more than the deadline
// allows, the deadline is impossible. Costs count as on the fastest device that can run the task,
// transfers as over the fastest link, so the bound holds for Placeto's simulation and for ours.
double makespan_bound(const TaskGraph& graph, const std::vector<ListDevice>& devices);

}  // namespace autodist::search::placement
