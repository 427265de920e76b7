// What no schedule of a plan, and no plan of a problem, can beat.

#pragma once

#include <string>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/program/program.h"
#include "autodist/sim/cost_model.h"

namespace autodist::sim {

struct Bounds {
  // The plan's own: the largest of these four, and of the problem's where that holds for it.
  Seconds plan;
  Seconds compute;         // of the slowest rank
  Seconds card;            // of the busiest side of a NIC
  Seconds owner;           // of the busiest owner's sums, updates and installations
  Seconds chain;           // round a variable: forward, backward, to the owner and back
  std::string card_name;   // "10.0.0.1 sends"
  std::string owner_name;  // "rank 0"
  std::string chain_name;  // of the variable

  // The problem's: the least that any lossless synchronous data-parallel strategy needs for the
  // same graph, batch and cluster, whatever the owners, and whether gradients travel whole or as
  // factors. Of a placed graph: its ops spread evenly over the stages.
  Seconds problem;
  // The problem's bound where gradients travel whole: the largest of compute, `traffic` (what cards
  // carry) and the chain with an owner chosen best.
  Seconds whole;
  Seconds traffic;
};

// What sets the plan's bound, as people read it: "compute", "10.0.0.1 sends". A way round a
// variable is computing for the most part, where it is: "compute, and the way round 'fc.weight'".
std::string bound_name(const Bounds& bounds);

Bounds bounds_of(const program::Program& program, const cluster::Cluster& cluster,
                 const CostModel& costs);
struct JobTables;
Bounds bounds_of(const program::Program& program, const cluster::Cluster& cluster,
                 const CostModel& costs, const JobTables& tables);

// The least time in which `bytes` of gradients are summed and returned over nodes of these NIC
// rates: `workers` have each a gradient, `servers` only serve. Each byte has one owner; a worker
// that owns o of M bytes sends (M - o) + (n-1) o, a server n o. With equal rates this is 2n(n-1)M /
// ((n^2 + kn - 2k) B) for n workers and k <= n servers (Jiang et al., OSDI 2020, section 4.1).
Seconds least_traffic(double bytes, const std::vector<double>& workers,
                      const std::vector<double>& servers);

}  // namespace autodist::sim
