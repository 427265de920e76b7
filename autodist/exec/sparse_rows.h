// Rows of a block of a variable, as they travel: which, ascending, and their values.
//
// A payload is the shorter of two forms, which its size tells apart:
//   list:  8 bytes of row number each, then the rows' values
//   dense: one bit per row of the block (padded to 8 bytes), then the values of all rows, 0 where
//          the bit is not set
// so that a step which touches most rows costs no more than a dense gradient and a bit per row.
//
// Plain bytes, no tensors.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/comm/transport.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// `rows` rows of `width` elements; the first is row `first` of its variable.
struct RowBlock {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  DType dtype = DType::kFloat32;

  [[nodiscard]] std::size_t row_bytes() const { return width * size_of(dtype); }
};

// Of a slice that travels by rows; one whose elements are asked for is one row.
RowBlock block_of(const program::Program& program, const program::Slice& slice);

struct Rows {
  std::vector<std::int64_t> numbers;  // ascending, from 0 within the block
  const std::byte* values = nullptr;  // numbers.size() rows, aligned for the dtype
  std::shared_ptr<const void> keep;   // of the values

  [[nodiscard]] const std::byte* row(std::size_t index, const RowBlock& block) const {
    return values + index * block.row_bytes();
  }
};

// The shorter form.
comm::Payload pack_rows(const RowBlock& block, const Rows& rows);
// Throws InternalError for bytes that pack_rows does not write for this block.
Rows unpack_rows(const RowBlock& block, const comm::Payload& payload);

// The union of the terms' rows; each the sum of weight * row over the terms that have it, in their
// order: the bits that weighted_sum() makes of the same terms as dense arrays.
struct RowTerm {
  const Rows* rows = nullptr;
  double weight = 1;
};
Rows sum_rows(const RowBlock& block, const std::vector<RowTerm>& terms);

// Copies rows out of a whole block and back.
Rows rows_of(const RowBlock& block, std::vector<std::int64_t> numbers, const std::byte* whole);
void put_rows(const RowBlock& block, const Rows& rows, std::byte* whole);

}  // namespace autodist::exec
