// From a request to a Strategy that is ready to travel: chosen, checked, with its priorities fixed.

#pragma once

#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/search/builders/builders.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {

// AutoDist's default.
inline const std::string kDefaultBuilder = "PSLoadBalancing";

struct StrategyRequest {
  std::string builder = kDefaultBuilder;  // "NAME" or "NAME:key=value,…"
  std::string file;                       // a strategy file; takes the builder's place
  std::vector<search::Builder> own;       // a user's builders, beside ours
  // The graph is one of several: the file's nodes for variables that it has not are left out.
  bool one_of_several = false;
};

// Where a strategy comes from, for messages: the file's path, or "builder NAME".
std::string source_of(const StrategyRequest& request);

// Throws as strategy::check and search::build_strategy do. What a file holds and we pass over is
// added to `warnings`.
strategy::Strategy choose_strategy(const StrategyRequest& request, const ir::Graph& graph,
                                   const cluster::Cluster& cluster,
                                   std::vector<std::string>& warnings);

}  // namespace autodist::app
