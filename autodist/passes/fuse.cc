// Small neighbours -> one slice: a message has a price of its own, and most tensors of a
// convolutional network are biases and norms (of ResNet-50's 161 tensors, 119 have under 40,000
// elements).

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

// Slices may share a message when the same ranks do the same with them.
using Kind = std::tuple<ir::Rank, ir::UpdateAt, DType, std::optional<ir::ClipId>>;

Kind kind_of(const ir::Program& program, const ir::Slice& slice) {
  const ir::VariableId variable = program.shard(slice.pieces.front().shard).variable;
  return {slice.owner, slice.update_at, slice.dtype, program.plan(variable).clip};
}

}  // namespace

void fuse(State& state) {
  ir::Program& program = state.program;
  std::stable_sort(program.slices.begin(), program.slices.end(),
                   [](const ir::Slice& a, const ir::Slice& b) { return a.needed < b.needed; });
  const Bytes small = state.options.fuse_below;
  std::vector<ir::Slice> fused;
  std::map<Kind, std::size_t> open;  // the slice of a kind that neighbours may still join
  for (ir::Slice& slice : program.slices) {
    const Kind kind = kind_of(program, slice);
    const auto neighbour = open.find(kind);
    if (ir::bytes_of(slice) >= small) {
      // What comes after a large slice is needed later than it: do not let it overtake.
      open.erase(kind);
      fused.push_back(std::move(slice));
    } else if (neighbour != open.end() &&
               ir::bytes_of(fused[neighbour->second]) + ir::bytes_of(slice) <= small) {
      ir::Slice& first = fused[neighbour->second];
      first.pieces.insert(first.pieces.end(), slice.pieces.begin(), slice.pieces.end());
    } else {
      open[kind] = fused.size();
      fused.push_back(std::move(slice));
    }
  }
  program.slices = std::move(fused);
}

}  // namespace autodist::passes
