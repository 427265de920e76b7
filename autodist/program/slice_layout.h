// Where the elements of a slice lie in its variables.
//
// A slice is cut from shards in the shard's own row-major order. A shard along axis 0 is one
// stretch of its variable; along another axis it is many. Runs say so once, for packing gradients,
// unpacking results and gathering state alike.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::program {

// `count` consecutive elements: of the slice from `slice_begin`, of the variable (dense, row-major)
// from `variable_begin`.
struct ElementRun {
  std::int64_t slice_begin = 0;
  std::int64_t variable_begin = 0;
  std::int64_t count = 0;

  friend bool operator==(const ElementRun& a, const ElementRun& b) {
    return a.slice_begin == b.slice_begin && a.variable_begin == b.variable_begin &&
           a.count == b.count;
  }
};

// What a slice holds of one piece of a variable.
struct PieceLayout {
  ir::VariableId variable;
  std::int64_t slice_begin = 0;  // elements
  std::int64_t count = 0;
  std::vector<ElementRun> runs;  // ascending in both; neighbours are joined
};

// In the order of slice.pieces.
std::vector<PieceLayout> layout_of(const Program& program, const Slice& slice);

// The variables of a slice, ascending, each once.
std::vector<ir::VariableId> variables_of(const Program& program, const Slice& slice);

// Copies a piece between dense row-major tensors of its variable and the slice's own bytes.
void pack(const PieceLayout& piece, std::size_t element_bytes, const std::byte* variable,
          std::byte* slice);
void unpack(const PieceLayout& piece, std::size_t element_bytes, const std::byte* slice,
            std::byte* variable);

}  // namespace autodist::program
