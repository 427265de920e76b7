// Graphs by name: the captured steps of the built-in models that ship with AutoDist, so that
// planning and inspecting them needs neither libtorch nor the model.

#pragma once

#include <string>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::planning {

// Folder of the shipped graphs, beside the program: ../share/autodist/graphs.
std::string archive_folder();

// Folder of the shipped clusters: ../share/autodist/clusters.
std::string shipped_clusters();

// Names in the archive, sorted.
std::vector<std::string> archived_graphs();

// A captured graph, or what stands for AutoDist's graph_item where a plan is made. `where` names
// the source in messages; throws Error(kUsage).
ir::Graph parse_graph(const std::string& bytes, const std::string& where);

// The file of either, or a name in the archive. Throws Error(kUsage) with the nearest name.
ir::Graph load_graph(const std::string& name_or_path);

}  // namespace autodist::planning
