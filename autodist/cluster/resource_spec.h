// The YAML of a resource specification, read strictly: every key is known, every value has its type
// and range, and a message says where. Grammar: docs/formats/cluster.md.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/cluster/cluster.h"

namespace autodist::cluster {

// What must hold of any cluster, from whatever file: at least one node, distinct addresses, one
// chief (a single node is made it), no loopback among several nodes, a chief that computes,
// addresses that are some. Throws Error(kUsage), prefixed with `where`.
void settle(Cluster& cluster, const std::string& where);

// Bytes of a file that describes a cluster.
inline constexpr std::int64_t kLongestFile = 1 << 20;

}  // namespace autodist::cluster
