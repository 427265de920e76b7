// Which plans a data set should hold: the hand-written ones, what lies near them, and random ones.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autodist/passes/pipeline.h"
#include "autodist/search/autosync/space.h"

namespace autodist::search {

struct Proposal {
  std::string name;  // of the builder, "near 3" or "random 4"
  strategy::Strategy strategy;
};

// `count` different plans that the passes can carry out (fewer, where there are so few): all
// builders', then by turns a few steps away from one of them and anywhere in the space. One seed,
// one list; another seed begins elsewhere. Their priorities are fixed.
std::vector<Proposal> propose(const std::shared_ptr<const ir::Graph>& graph,
                              const cluster::Cluster& cluster, const passes::Options& passes,
                              std::size_t count, std::uint64_t seed);

}  // namespace autodist::search
