// Which exchange a strategy's synchronizer asks for, of a shard with given properties. The pass
// that makes slices and the arithmetic score of the search both ask here.

#pragma once

#include <cstdint>

#include "autodist/base/dtype.h"
#include "autodist/ir/graph.h"
#include "autodist/program/exchange.h"
#include "autodist/strategy/strategy.h"

namespace autodist::passes {

enum class SynchronizerKind {
  kParameterServer,  // one owner, which also updates
  kDirect,           // all-reduce by owners of slices
  kLibrary,          // all-reduce by c10d, updated at every rank
};

// AUTO and NCCL mean direct unless the strategy asks for the library
// (docs/decisions/010-direct-all-reduce.md), and so does PowerSGD, which is two all-reduces of
// whole gradients' factors. REQUIRES: not empty.
SynchronizerKind kind_of(const strategy::Synchronizer& synchronizer);

// What the exchange depends on besides.
struct ExchangeFacts {
  DType dtype = DType::kFloat32;
  std::int64_t members = 1;  // ranks that compute with the variable
  bool by_rows = false;      // its gradient is (ir::trained_by_rows)
  bool fetchable = false;    // which rows a step reads is known before it reads them
  bool factors_pay = false;  // two factors of the gradient are worth sending (ir::factors_pay)
};

// Of a whole variable, in steps of so many micro-batches of `batch` samples each.
ExchangeFacts facts_of(const ir::Graph& graph, ir::VariableId variable, std::int64_t members,
                       std::int64_t micro_batches, std::int64_t batch);

// The route is the one that is asked for; program::effective_route() says where it matters.
// REQUIRES: `synchronizer` is not empty.
program::Exchange exchange_of(const strategy::Synchronizer& synchronizer,
                              const ExchangeFacts& facts);

}  // namespace autodist::passes
