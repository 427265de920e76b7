// What the other builders would do with the same graph on the same cluster.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/passes/pipeline.h"
#include "autodist/report/html/plan_section.h"

namespace autodist::planning {

// Every builder with its defaults, in the order of help, and what its Program puts on the busiest
// rank. `chosen` is "NAME" or "NAME:key=value,…", or empty for a strategy from elsewhere. A builder
// that cannot serve this graph and cluster says why. Of `asked` count the batch and which devices
// compute. `batch`: as for report::traffic_of().
std::vector<report::Alternative> alternatives_of(std::shared_ptr<const ir::Graph> graph,
                                                 const cluster::Cluster& cluster,
                                                 const passes::Options& asked,
                                                 const std::string& chosen, std::int64_t batch);

}  // namespace autodist::planning
