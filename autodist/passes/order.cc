#include <algorithm>
#include <tuple>

#include "autodist/passes/pass.h"
#include "autodist/passes/slice_table.h"

namespace autodist::passes {
namespace {

// The ids of slices follow (needed, variable, place in the variable).
void order_slices(State& state) {
  sort_slices(state.program.slices, [&](const program::Slice& slice) {
    const program::Piece& first = slice.pieces.front();
    return std::make_tuple(slice.needed.value, state.program.shard(first.shard).variable.value,
                           first.shard.value, first.begin, slice.owner.value);
  });
  name_slices(state.program);
}

// Library collectives follow the completion of their last gradient, so that none waits behind one
// that cannot start yet.
void order_collectives(State& state) {
  auto& collectives = state.program.collectives;
  const auto key = [&](const program::Collective& collective) {
    std::int64_t complete = -1;
    for (ir::VariableId id : collective.variables) {
      const auto& op = state.graph().variable(id).gradient_complete;
      if (op) complete = std::max(complete, std::int64_t{op->value});
    }
    return std::make_pair(complete, collective.variables.front().value);
  };
  std::stable_sort(
      collectives.begin(), collectives.end(),
      [&](const program::Collective& a, const program::Collective& b) { return key(a) < key(b); });
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    for (ir::VariableId id : collectives[i].variables) {
      state.program.variables[id.value].collective = program::CollectiveId(i);
    }
  }
}

}  // namespace

void order(State& state) {
  order_slices(state);
  order_collectives(state);
}

}  // namespace autodist::passes
