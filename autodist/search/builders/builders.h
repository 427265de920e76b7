// The hand-written strategies: each a function from a graph and a cluster to a Strategy. AutoDist's
// have exactly its results; a user's own stand beside them.

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/strategy/strategy.h"

namespace autodist::search {

using BuilderOptions = std::map<std::string, std::string>;

struct Builder {
  std::string name;                                          // "PartitionedPS"
  std::string description;                                   // one line
  std::vector<std::pair<std::string, std::string>> options;  // name, default
  std::function<strategy::Strategy(const ir::Graph&, const cluster::Cluster&,
                                   const BuilderOptions&)>
      build;
};

// Ours, in the order in which help lists them.
const std::vector<Builder>& builders();

// "PartitionedPS" or "AllReduce:chunk_size=64,compressor=HorovodCompressor". Throws Error(kUsage)
// for an unknown builder or option (nearest known one given) or a bad value. `own` are a user's
// builders; they hide ours of the same name. The id is left empty.
strategy::Strategy build_strategy(const std::string& specification, const ir::Graph& graph,
                                  const cluster::Cluster& cluster,
                                  const std::vector<Builder>& own = {});

// A specification beside a time: "DDP-like (as AutoDist runs it)". What is named like a system is
// that system's strategy on our transport, and its time not that system's. Others as they are.
std::string shown_name(const std::string& specification);

}  // namespace autodist::search
