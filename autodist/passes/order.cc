// Slices in the order of need (P3, section 4), which is also the order of their ids; library
// collectives in the order in which the last gradient of each completes, the same on every rank.

#include <algorithm>

#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

ir::OpId completion(const ir::Graph& graph, const ir::Collective& collective) {
  ir::OpId last;
  for (ir::VariableId variable : collective.variables) {
    last = std::max(last, *graph.variable(variable).gradient_complete);
  }
  return last;
}

}  // namespace

void order(State& state) {
  ir::Program& program = state.program;
  std::stable_sort(program.slices.begin(), program.slices.end(),
                   [](const ir::Slice& a, const ir::Slice& b) { return a.needed < b.needed; });
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    for (const ir::Piece& piece : program.slices[i].pieces) {
      auto& slices = program.variables[program.shard(piece.shard).variable.value].slices;
      const bool named = !slices.empty() && slices.back() == ir::SliceId(i);
      if (!named) slices.push_back(ir::SliceId(i));
    }
  }
  std::stable_sort(program.collectives.begin(), program.collectives.end(),
                   [&](const ir::Collective& a, const ir::Collective& b) {
                     return completion(state.graph, a) < completion(state.graph, b);
                   });
  for (std::size_t i = 0; i < program.collectives.size(); ++i) {
    for (ir::VariableId variable : program.collectives[i].variables) {
      program.variables[variable.value].collective = ir::CollectiveId(i);
    }
  }
}

}  // namespace autodist::passes
