// One machine of a job that no other one reaches, for a while, as behind a switch that fails.
//
// On both sides routes that lead nowhere are set. They go by themselves, also where whoever asked
// for them is gone by then; only what is killed by force leaves them behind.

#pragma once

#include <string>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"

namespace autodist::app {

// Throws Error(kUsage) where all nodes are this machine; Error(kEnvironment) where one of them or
// of the spares cannot be asked, does not know another's address, or does not let its routes be
// changed: that takes `ip`, and root or a sudo that asks nothing.
void check_partitions(const cluster::Cluster& cluster);

// The side of the machine that is cut off goes so much later than the others', as its answer comes
// back on the way that is cut, and is whole again so much later.
inline constexpr Seconds kOwnSideIsLate{0.5};

// Returns when all have answered. `address` is a node of the cluster that is another machine.
// Throws Error(kEnvironment) where a machine does not do it: some may be cut off from each other
// then, for as long.
void cut_off(const std::string& address, Seconds how_long, const cluster::Cluster& cluster);

}  // namespace autodist::app
