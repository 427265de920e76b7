// Clusters of machines that are alike.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/cluster/cluster.h"

namespace autodist::studies {

// With one CPU each, the first one the chief; at links of so many bytes per second.
cluster::Cluster machines(std::uint32_t count, double bytes_per_s,
                          Seconds latency = cluster::Node().latency);

void add_gpus(cluster::Node& node, int count, const std::string& kind);

}  // namespace autodist::studies
