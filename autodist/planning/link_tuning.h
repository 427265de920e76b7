// From what a link can do to how slices use it: docs/several-machines.md has the measurement behind
// the rule.

#pragma once

#include <optional>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/comm/library_probe.h"
#include "autodist/comm/link_probe.h"
#include "autodist/ir/graph.h"
#include "autodist/passes/pipeline.h"
#include "autodist/sim/calibration.h"
#include "autodist/strategy/strategy.h"

namespace autodist::planning {

struct LinkTuning {
  Bytes slice;
  Bytes window;

  friend bool operator==(const LinkTuning& a, const LinkTuning& b) {
    return a.slice == b.slice && a.window == b.window;
  }
};

// slice: the power of two from which on a message's cost is at most 3 % of its time on the wire, or
// a smaller one where `exchanged`, what a step exchanges, is little (docs/decisions/186); window:
// two slices, or what the link carries until an acknowledgement is back from a receiver that is
// busy computing. Powers of two: a job that measures again finds the same.
LinkTuning tune(const comm::LinkFigures& figures, Bytes exchanged);

// What the cluster's file says of its slowest link, at a usual cost of a message; nothing where all
// ranks are on one machine, which have no link to be careful with.
std::optional<comm::LinkFigures> declared_links(const cluster::Cluster& cluster);

// What a rewrite fills in where the strategy leaves it open: so that a plan is predicted with the
// slices and windows that a job on such links will have.
void tune_to(const std::optional<comm::LinkFigures>& figures, const ir::Graph& graph,
             passes::Options& options);

// How a graph is rewritten for a job on `cluster` whose links were not measured: with what its file
// declares of them.
passes::Options declared_options(const cluster::Cluster& cluster, const ir::Graph& graph,
                                 bool cpu_only);

// Fills in what the strategy leaves open.
void put_tuning(const comm::LinkFigures& figures, const ir::Graph& graph,
                strategy::Strategy& strategy);

// What the simulator makes of a library's all-reduces among so many ranks, all there are, in a
// calibration's keys. Times are rounded to half powers of two, so that a job that measures again
// mostly finds the same.
sim::Calibration library_costs(const comm::LibraryFigures& figures, std::size_t ranks,
                               const cluster::Cluster& cluster);

// Adds what was measured, if it was; what `calibration` says already stays.
void add_library(const std::optional<comm::LibraryFigures>& figures, std::size_t ranks,
                 const cluster::Cluster& cluster, sim::Calibration& calibration);

// Adds how many cores the ranks of a machine share, where they are fewer than the ranks.
void add_cores(std::optional<std::uint32_t> cores, sim::Calibration& calibration);

}  // namespace autodist::planning
