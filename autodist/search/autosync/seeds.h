// Where searches begin: every hand-written builder.

#pragma once

#include <string>
#include <vector>

#include "autodist/search/autosync/found.h"

namespace autodist::search {

// What the documentation recommends by hand: where links are slow beside the gradients, and where
// several ranks of a node share its link.
inline constexpr char kRecommended[] = "AllReduce:algorithm=sufficient_factors";
inline constexpr char kForSharedNodes[] = "AllReduce:algorithm=hierarchical";

// Every builder with its defaults, and a cap on shards where its rule has none; those that group
// variables once more by a library's all-reduce, as the systems that they imitate do, or by its
// ring where `allowed` has no library; and what is recommended, as far as it is allowed.
std::vector<std::string> seeds(const Allowed& allowed = {});

// The Program of the first seed that the passes accept, which tells the ranks, and with costs what
// their devices take. Throws Error(kInfeasible) where there is none.
program::Program seed_program(const Judge& judge, const ir::Graph& graph,
                              const cluster::Cluster& cluster);

// Every seed's strategy. Some go by the times of `graph`, which are of the machine that captured
// it: sim::with_times gives it the devices'.
std::vector<Candidate> seed_candidates(const ir::Graph& graph, const cluster::Cluster& cluster,
                                       const Space& space);

}  // namespace autodist::search
