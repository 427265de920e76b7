// How long the state that a change of plans moves keeps the cluster's links busy
// (program/transition.h).

#pragma once

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/program/program.h"
#include "autodist/program/transition.h"

namespace autodist::planning {

// The busiest link's bytes by its rate. A link is a node's network card, in one direction, or, for
// what stays on a node, its own memory. Latencies, switches, what hosts do to the bytes, and
// whatever else uses the links are left out.
//
// REQUIRES: every node of `program`, whose ranks the moves are between, is one of the cluster's.
Seconds transition_seconds(const program::Transition& transition, const program::Program& program,
                           const cluster::Cluster& cluster, const program::BytesOfMove& bytes_of);

}  // namespace autodist::planning
