// What trainings and trials on this machine's clusters took: a data set (data_set.h) that grows,
// from which the next search on the same cluster learns.

#pragma once

#include <string>
#include <vector>

#include "autodist/base/environment.h"
#include "autodist/planning/data_set.h"

namespace autodist::planning {

// AUTODIST_HISTORY; without it autodist/history in XDG_STATE_HOME, else in ~/.local/state. Empty:
// none, because AUTODIST_HISTORY is `off`, or the environment has no home.
std::string history_folder(const Environment& environment);

// Where a graph's points on a cluster go: its name, and the cluster's shape with the samples per
// replica ("3f0a1c2e-b16").
DataCell history_cell(const ir::Graph& graph, const cluster::Cluster& cluster);

// Keeps one measured plan. Its id is the strategy's; the same plan measured again takes its place.
// A folder that cannot be written to keeps nothing.
void add_to_history(const std::string& folder, const ir::Graph& graph,
                    const cluster::Cluster& cluster, strategy::Strategy strategy,
                    const Runtimes& runtimes);

// The cells that were measured on `cluster`, of whatever model. Nothing where there is no such
// folder; what cannot be read is passed over.
std::vector<DataCell> history_on(const std::string& folder, const cluster::Cluster& cluster);

}  // namespace autodist::planning
