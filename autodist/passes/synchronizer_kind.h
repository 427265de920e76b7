// The three ways in which this build synchronises a shard.

#pragma once

#include <variant>

#include "autodist/strategy/strategy.h"

namespace autodist::passes {

enum class SynchronizerKind {
  kParameterServer,  // one owner, which also updates
  kDirect,           // all-reduce by owners of slices: summed in rank order, updated at every rank
  kLibrary,          // all-reduce by c10d, updated at every rank
};

// AUTO, NCCL and RING mean direct unless the strategy asks for the library
// (docs/decisions/010-direct-all-reduce.md). REQUIRES: not empty.
inline SynchronizerKind kind_of(const strategy::Synchronizer& synchronizer) {
  if (std::holds_alternative<strategy::PsSynchronizer>(synchronizer)) {
    return SynchronizerKind::kParameterServer;
  }
  return std::get<strategy::AllReduceSynchronizer>(synchronizer).algorithm ==
                 strategy::AllReduceAlgorithm::kLibrary
             ? SynchronizerKind::kLibrary
             : SynchronizerKind::kDirect;
}

}  // namespace autodist::passes
