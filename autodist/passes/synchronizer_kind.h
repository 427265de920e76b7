// The ways in which this build synchronises a shard.

#pragma once

#include <variant>

#include "autodist/strategy/strategy.h"

namespace autodist::passes {

enum class SynchronizerKind {
  kParameterServer,  // one owner, which also updates
  kDirect,           // all-reduce by owners of slices: summed in rank order, updated at every rank
  kLibrary,          // all-reduce by c10d, updated at every rank
};

// AUTO and NCCL mean direct unless the strategy asks for the library
// (docs/decisions/010-direct-all-reduce.md), and so does PowerSGD, which is two all-reduces of
// whole gradients' factors. REQUIRES: not empty.
inline SynchronizerKind kind_of(const strategy::Synchronizer& synchronizer) {
  if (std::holds_alternative<strategy::PsSynchronizer>(synchronizer)) {
    return SynchronizerKind::kParameterServer;
  }
  const bool library = std::get<strategy::AllReduceSynchronizer>(synchronizer).algorithm ==
                       strategy::AllReduceAlgorithm::kLibrary;
  const bool factors = strategy::compression_of(synchronizer).codec == program::Codec::kPowerSgd;
  return library || factors ? SynchronizerKind::kLibrary : SynchronizerKind::kDirect;
}

// The way that a strategy asks for; program::effective_route() says where it matters. RING without
// an algorithm is one, unless what would be added on the way is compressed.
inline program::Route route_of(const strategy::Synchronizer& synchronizer) {
  if (const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer)) {
    return ps->local_replication && ps->sync ? program::Route::kProxies : program::Route::kDirect;
  }
  const auto& all_reduce = std::get<strategy::AllReduceSynchronizer>(synchronizer);
  switch (all_reduce.algorithm) {
    case strategy::AllReduceAlgorithm::kRing:
      return program::Route::kRing;
    case strategy::AllReduceAlgorithm::kTree:
      return program::Route::kTree;
    case strategy::AllReduceAlgorithm::kHierarchical:
      return program::Route::kNodes;
    case strategy::AllReduceAlgorithm::kBySpec: {
      const bool plain = strategy::compression_of(synchronizer).codec == program::Codec::kNone;
      return all_reduce.spec == strategy::AllReduceSpec::kRing && plain ? program::Route::kRing
                                                                        : program::Route::kDirect;
    }
    default:
      return program::Route::kDirect;
  }
}

}  // namespace autodist::passes
