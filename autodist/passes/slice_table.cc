#include "autodist/passes/slice_table.h"

#include <algorithm>

#include "autodist/base/even_part.h"

namespace autodist::passes {

std::vector<program::Piece> cut(const program::Piece& whole, std::int64_t limit) {
  const std::int64_t elements = whole.end - whole.begin;
  const std::int64_t count = std::max<std::int64_t>(1, (elements + limit - 1) / limit);
  std::vector<program::Piece> pieces;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [begin, end] = even_part(elements, i, count);
    pieces.push_back({whole.shard, whole.begin + begin, whole.begin + end});
  }
  return pieces;
}

void name_slices(program::Program& program) {
  for (program::VariablePlan& plan : program.variables) plan.slices.clear();
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    for (const program::Piece& piece : program.slices[i].pieces) {
      auto& slices = program.variables[program.shard(piece.shard).variable.value].slices;
      if (slices.empty() || slices.back() != program::SliceId(i)) slices.emplace_back(i);
    }
  }
}

}  // namespace autodist::passes
