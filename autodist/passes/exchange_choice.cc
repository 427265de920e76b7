#include "autodist/passes/exchange_choice.h"

#include <variant>

#include "autodist/ir/factors.h"
#include "autodist/ir/rows.h"

namespace autodist::passes {
namespace {

using strategy::AllReduceAlgorithm;

// None where what is asked for would make nothing smaller of such elements.
program::Compression codec_of(const program::Compression& asked, DType dtype) {
  return encodes(asked, dtype) ? asked : program::Compression{};
}

program::Route route_of(const strategy::AllReduceSynchronizer& all_reduce) {
  switch (strategy::algorithm_of(all_reduce)) {
    case AllReduceAlgorithm::kRing:
      return program::Route::kRing;
    case AllReduceAlgorithm::kTree:
      return program::Route::kTree;
    case AllReduceAlgorithm::kHierarchical:
      return program::Route::kNodes;
    default:
      return program::Route::kDirect;
  }
}

// A parameter server without local replication keeps rows until somebody needs them.
program::Slices of_server(const strategy::PsSynchronizer& ps, const ExchangeFacts& facts) {
  program::Slices exchange;
  if (facts.by_rows) {
    const bool fetch = facts.fetchable && !ps.local_replication;
    exchange.payload =
        program::Rows{fetch ? program::RowTransfer::kFetch : program::RowTransfer::kReturn};
  } else {
    const bool proxies = ps.local_replication && ps.sync;
    program::Dense dense{proxies ? program::Route::kProxies : program::Route::kDirect,
                         codec_of(ps.compression, facts.dtype)};
    dense.delivery = ps.delivery;
    exchange.payload = dense;
  }
  if (ps.sync) {
    exchange.order = program::Versions{static_cast<std::uint32_t>(ps.staleness)};
  } else {
    exchange.order = program::Asynchronous{};
  }
  return exchange;
}

// Of an all-reduce of rows each member sends r bytes of rows to every other one, or every member
// owns a part and 2(n-1)/n r bytes travel, which is less from three members on.
program::Slices of_all_reduce(const strategy::AllReduceSynchronizer& all_reduce,
                              const ExchangeFacts& facts) {
  if (facts.by_rows) {
    const bool gather = !facts.fetchable || facts.members <= 2;
    return {program::Rows{gather ? program::RowTransfer::kGather : program::RowTransfer::kFetch},
            program::Versions{}};
  }
  if (all_reduce.algorithm == AllReduceAlgorithm::kSufficientFactors && facts.factors_pay) {
    return {program::Factors{}, program::Versions{0, program::UpdateAt::kEveryRank}};
  }
  program::Dense dense{route_of(all_reduce),
                       codec_of(strategy::compression_of(all_reduce), facts.dtype)};
  if (all_reduce.update_at == program::UpdateAt::kEveryRank) dense.down = dense.up;
  return {dense, program::Versions{0, all_reduce.update_at}};
}

}  // namespace

SynchronizerKind kind_of(const strategy::Synchronizer& synchronizer) {
  if (std::holds_alternative<strategy::PsSynchronizer>(synchronizer)) {
    return SynchronizerKind::kParameterServer;
  }
  const auto& all_reduce = std::get<strategy::AllReduceSynchronizer>(synchronizer);
  return strategy::algorithm_of(all_reduce) == AllReduceAlgorithm::kLibrary
             ? SynchronizerKind::kLibrary
             : SynchronizerKind::kDirect;
}

ExchangeFacts facts_of(const ir::Graph& graph, ir::VariableId variable, std::int64_t members,
                       std::int64_t micro_batches, std::int64_t batch) {
  ExchangeFacts facts;
  facts.dtype = graph.value(graph.variable(variable).value).type.dtype;
  facts.members = members;
  facts.by_rows = ir::trained_by_rows(graph.variable(variable));
  if (micro_batches > 1) return facts;  // of sums of gradients neither is known
  facts.fetchable = facts.by_rows && ir::rows_read(graph, variable).has_value();
  facts.factors_pay = ir::factors_pay(graph, variable, members, batch);
  return facts;
}

program::Exchange exchange_of(const strategy::Synchronizer& synchronizer,
                              const ExchangeFacts& facts) {
  if (const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer)) {
    return of_server(*ps, facts);
  }
  if (kind_of(synchronizer) == SynchronizerKind::kLibrary && !facts.by_rows) {
    return program::Library{strategy::compression_of(synchronizer)};
  }
  return of_all_reduce(std::get<strategy::AllReduceSynchronizer>(synchronizer), facts);
}

}  // namespace autodist::passes
