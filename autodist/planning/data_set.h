// Measured plans in AutoSync's layout (docs/formats/data_set.md):
//
//   <model>/graph_item
//   <model>/<cluster>/{resource_spec,runtime,strategies}/<ID>[.yml]
//
// Ours adds <model>/<cluster>/graph.adg, the step as it was captured there with the times of its
// ops, which AutoSync's readers do not look at.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/planning/runtimes.h"
#include "autodist/strategy/strategy.h"

namespace autodist::planning {

struct DataPoint {
  std::string id;
  strategy::Strategy strategy;
  Runtimes runtimes;

  // The median of the measured steps; the average, where the file has no more.
  [[nodiscard]] Seconds step() const { return runtimes.step(); }
};

// What was measured of one model on one cluster.
struct DataCell {
  std::string model;    // folders' names
  std::string cluster;  // followed by "#2", … where the folder holds several clusters
  std::shared_ptr<const ir::Graph> graph;
  cluster::Cluster machines;
  std::vector<DataPoint> points;  // by id
};

// All cells of a folder, by name. Takes `strategy` for `strategies` and `runtimes` for `runtime`,
// file names with .yml and without, one resource specification for all points of a cluster, and
// runtimes as JSON. A point that lacks a part, or whose strategy is of another graph, is left out
// with a line in `warnings`. Keys that a specification names are not opened. Throws Error(kUsage)
// where the folder is none, or holds no point.
std::vector<DataCell> read_data_set(const std::string& folder, std::vector<std::string>& warnings);

// Makes the cell's folders and what all its points share. Without the ssh groups of `machines`.
// Throws Error(kEnvironment).
void write_cell(const std::string& folder, const DataCell& cell);
// One point of a cell that was written; its id is the strategy's.
void write_point(const std::string& folder, const DataCell& cell,
                 const strategy::Strategy& strategy, const Runtimes& runtimes);

}  // namespace autodist::planning
