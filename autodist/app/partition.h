// One machine of a job that no other one reaches, for a while, as behind a switch that fails.
//
// On both sides routes that lead nowhere are set, which wait and go by themselves: nothing is left
// behind when whoever asked for them is gone.

#pragma once

#include <string>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"

namespace autodist::app {

// So long after cut_off() has begun, an answer has come back on the way that is cut then.
inline constexpr Seconds kCutBegins{0.5};

// Throws Error(kUsage) where all nodes are this machine; Error(kEnvironment) where one cannot be
// asked, or its routes not be changed: that takes `ip`, and root or a sudo that asks nothing.
void check_partitions(const cluster::Cluster& cluster);

// `address` is a node of the cluster that is another machine. Throws
// Error(kEnvironment) where a machine cannot be asked; others may be cut off from it then.
void cut_off(const std::string& address, Seconds how_long, const cluster::Cluster& cluster);

}  // namespace autodist::app
