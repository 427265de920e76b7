#include "autodist/program/sums.h"

#include <algorithm>
#include <vector>

#include "autodist/ir/canonical.h"
#include "autodist/program/loads.h"
#include "autodist/program/slice_layout.h"

namespace autodist::program {
namespace {

// Contributions are added up in rank order, whoever sends what to whom.
bool adds_in_rank_order(Route route) { return route == Route::kDirect || route == Route::kProxies; }

class SumEncoder {
 public:
  explicit SumEncoder(const Program& program) : program_(program) {}

  Digest digest() {
    out_.add_each(structural_digest(*program_.graph), program_.replica_count(), program_.stages,
                  program_.micro_batches, program_.batch_shares);
    for (std::size_t i = 0; i < program_.variables.size(); ++i) encode(ir::VariableId(i));
    for (const Slice& slice : program_.slices) encode(slice);
    return out_.digest();
  }

 private:
  void encode(const Compression& codec) { out_.add(to_string(codec)); }

  void encode(ir::VariableId id) {
    const VariablePlan& plan = program_.plan(id);
    const Exchange exchange = program_.exchange(id);
    out_.add(std::uint64_t{exchange.index()});
    encode(contribution_form(exchange).codec);
    encode(result_form(exchange).codec);
    if (plan.collective) {
      const Collective& collective = program_.collectives[plan.collective->value];
      encode(collective.exchange.codec);
      out_.add_each(collective.variables, collective.spec);
    }
    if (plan.slices.empty()) return;
    const auto lag = lag_of(exchange);
    out_.add_each(lag.has_value(), lag.value_or(0), sums_products(exchange));
    const Route route = route_of(exchange);
    out_.add(adds_in_rank_order(route) ? Route::kDirect : route);
    if (depends_on_slices(id, exchange)) out_.add(makes_parameters(exchange));
  }

  [[nodiscard]] bool depends_on_slices(ir::VariableId id, const Exchange& exchange) const {
    const bool has_norm = program_.plan(id).clip.has_value() ||
                          program_.graph->variable(id).update.rule == ir::Rule::kLamb;
    const Codec codec = contribution_form(exchange).codec.codec;
    const bool by_slice = traits_of(codec).unit == EncodedUnit::kSlice;
    return has_norm || by_slice || !adds_in_rank_order(route_of(exchange));
  }

  // In the order in which norms are added up; with what else is in the slice, among which codecs
  // such as top-k pick.
  void encode(const Slice& slice) {
    const std::vector<PieceLayout> pieces = layout_of(program_, slice);
    const bool counts = std::any_of(pieces.begin(), pieces.end(), [&](const PieceLayout& piece) {
      return depends_on_slices(piece.variable, slice.exchange);
    });
    if (!counts) return;
    if (!adds_in_rank_order(route_of(slice.exchange))) out_.add(slice.owner);
    out_.add(element_count(slice));
    for (const PieceLayout& piece : pieces) {
      out_.add(piece.variable);
      for (const ElementRun& run : piece.runs) out_.add_each(run.variable_begin, run.count);
    }
  }

  const Program& program_;
  ir::Canonical out_;
};

}  // namespace

Digest sum_digest(const Program& program) { return SumEncoder(program).digest(); }

}  // namespace autodist::program
