#include "autodist/program/slice_layout.h"

#include <algorithm>
#include <cstring>

#include "autodist/base/check.h"
#include "autodist/base/sort_unique.h"

namespace autodist::program {
namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes, std::size_t begin, std::size_t end) {
  std::int64_t result = 1;
  for (std::size_t i = begin; i < end; ++i) result *= sizes[i];
  return result;
}

void append(std::vector<ElementRun>& runs, const ElementRun& run) {
  if (!runs.empty() && runs.back().slice_begin + runs.back().count == run.slice_begin &&
      runs.back().variable_begin + runs.back().count == run.variable_begin) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

// A shard is `outer` blocks of `block` elements, `stride` apart in the variable.
std::vector<ElementRun> runs_of(const Program& program, const Piece& piece,
                                std::int64_t slice_begin) {
  const Shard& shard = program.shard(piece.shard);
  const std::vector<std::int64_t> sizes = ir::shape_of(*program.graph, shard.variable);
  if (sizes.empty()) return {{slice_begin, 0, 1}};
  AD_CHECK(shard.axis < sizes.size()) << shard.name << " is cut along axis " << shard.axis;
  const std::int64_t inner = product(sizes, shard.axis + 1, sizes.size());
  const std::int64_t block = (shard.end - shard.begin) * inner;
  const std::int64_t stride = sizes[shard.axis] * inner;
  std::vector<ElementRun> runs;
  for (std::int64_t at = piece.begin; at < piece.end;) {
    const std::int64_t outer = at / block;
    const std::int64_t within = at % block;
    const std::int64_t count = std::min(block - within, piece.end - at);
    append(runs,
           {slice_begin + at - piece.begin, outer * stride + shard.begin * inner + within, count});
    at += count;
  }
  return runs;
}

}  // namespace

std::vector<PieceLayout> layout_of(const Program& program, const Slice& slice) {
  std::vector<PieceLayout> pieces;
  std::int64_t begin = 0;
  for (const Piece& piece : slice.pieces) {
    const std::int64_t count = piece.end - piece.begin;
    pieces.push_back(
        {program.shard(piece.shard).variable, begin, count, runs_of(program, piece, begin)});
    begin += count;
  }
  return pieces;
}

std::vector<ir::VariableId> variables_of(const Program& program, const Slice& slice) {
  std::vector<ir::VariableId> variables;
  for (const Piece& piece : slice.pieces) {
    variables.push_back(program.shard(piece.shard).variable);
  }
  sort_unique(variables);
  return variables;
}

void pack(const PieceLayout& piece, std::size_t element_bytes, const std::byte* variable,
          std::byte* slice) {
  for (const ElementRun& run : piece.runs) {
    std::memcpy(slice + run.slice_begin * element_bytes,
                variable + run.variable_begin * element_bytes, run.count * element_bytes);
  }
}

void unpack(const PieceLayout& piece, std::size_t element_bytes, const std::byte* slice,
            std::byte* variable) {
  for (const ElementRun& run : piece.runs) {
    std::memcpy(variable + run.variable_begin * element_bytes,
                slice + run.slice_begin * element_bytes, run.count * element_bytes);
  }
}

}  // namespace autodist::program
