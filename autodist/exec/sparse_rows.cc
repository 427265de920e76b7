#include "autodist/exec/sparse_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/weighted_sum.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

constexpr auto kNumberBytes = static_cast<std::size_t>(program::kRowNumberBytes);

std::size_t list_bytes(const RowBlock& block, std::size_t count) {
  return count * (kNumberBytes + block.row_bytes());
}
std::size_t mask_bytes(const RowBlock& block) {
  return static_cast<std::size_t>(program::row_mask_bytes(block.rows));
}
std::size_t dense_bytes(const RowBlock& block) {
  return mask_bytes(block) + block.rows * block.row_bytes();
}
// Strictly: a list never has the size of the dense form.
bool as_list(const RowBlock& block, std::size_t count) {
  return list_bytes(block, count) < dense_bytes(block);
}

bool is_set(const std::byte* mask, std::int64_t row) {
  return (std::to_integer<unsigned>(mask[row / 8]) >> (row % 8) & 1u) != 0;
}

// Values with an owner of their own.
Rows allocate_rows(const RowBlock& block, std::vector<std::int64_t> numbers, std::byte*& values) {
  std::shared_ptr<std::byte> memory = allocate_aligned(numbers.size() * block.row_bytes());
  values = memory.get();
  return {std::move(numbers), values, std::move(memory)};
}

Rows from_list(const RowBlock& block, const comm::Payload& payload) {
  const std::size_t count = payload.size / (kNumberBytes + block.row_bytes());
  AD_CHECK(list_bytes(block, count) == payload.size && as_list(block, count))
      << payload.size << " bytes are no list of rows of " << block.row_bytes() << " bytes";
  Rows rows;
  rows.numbers.resize(count);
  if (count != 0) std::memcpy(rows.numbers.data(), payload.data, count * kNumberBytes);
  for (std::size_t i = 0; i < count; ++i) {
    const bool ascends = i == 0 || rows.numbers[i - 1] < rows.numbers[i];
    AD_CHECK(ascends && 0 <= rows.numbers[i] && rows.numbers[i] < block.rows)
        << "row " << rows.numbers[i] << " of " << block.rows << " does not ascend or does not fit";
  }
  rows.values = payload.data + count * kNumberBytes;
  rows.keep = payload.keep;
  return rows;
}

}  // namespace

RowBlock block_of(const program::Program& program, const program::Slice& slice) {
  if (sums_all_elements(slice.exchange)) return {0, 1, element_count(slice), slice.dtype};
  const program::Piece& piece = slice.pieces.front();
  const program::Shard& shard = program.shard(piece.shard);
  const std::int64_t width = shard.elements / std::max<std::int64_t>(1, shard.end - shard.begin);
  if (width == 0) return {shard.begin, 0, 0, slice.dtype};
  return {shard.begin + piece.begin / width, (piece.end - piece.begin) / width, width, slice.dtype};
}

comm::Payload pack_rows(const RowBlock& block, const Rows& rows) {
  const std::size_t count = rows.numbers.size();
  if (as_list(block, count)) {
    std::shared_ptr<std::byte> bytes = allocate_aligned(list_bytes(block, count));
    if (count != 0) {
      std::memcpy(bytes.get(), rows.numbers.data(), count * kNumberBytes);
      std::memcpy(bytes.get() + count * kNumberBytes, rows.values, count * block.row_bytes());
    }
    return {bytes.get(), list_bytes(block, count), bytes};
  }
  std::shared_ptr<std::byte> bytes = allocate_zeros(dense_bytes(block));
  for (const std::int64_t row : rows.numbers) bytes.get()[row / 8] |= std::byte{1} << (row % 8);
  put_rows(block, rows, bytes.get() + mask_bytes(block));
  return {bytes.get(), dense_bytes(block), bytes};
}

Rows unpack_rows(const RowBlock& block, const comm::Payload& payload) {
  if (payload.size != dense_bytes(block)) return from_list(block, payload);
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    if (is_set(payload.data, row)) numbers.push_back(row);
  }
  return rows_of(block, std::move(numbers), payload.data + mask_bytes(block));
}

Rows sum_rows(const RowBlock& block, const std::vector<RowTerm>& terms) {
  std::vector<std::int64_t> numbers;
  for (const RowTerm& term : terms) {
    std::vector<std::int64_t> merged;
    merged.reserve(numbers.size() + term.rows->numbers.size());
    std::set_union(numbers.begin(), numbers.end(), term.rows->numbers.begin(),
                   term.rows->numbers.end(), std::back_inserter(merged));
    numbers = std::move(merged);
  }
  std::byte* values = nullptr;
  Rows sum = allocate_rows(block, std::move(numbers), values);
  std::vector<std::size_t> next(terms.size());
  std::vector<Term> of_row;
  for (std::size_t i = 0; i < sum.numbers.size(); ++i) {
    of_row.clear();
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const Rows& rows = *terms[t].rows;
      if (next[t] == rows.numbers.size() || rows.numbers[next[t]] != sum.numbers[i]) continue;
      of_row.push_back({rows.row(next[t]++, block), terms[t].weight});
    }
    weighted_sum(of_row, block.dtype, block.width, values + i * block.row_bytes());
  }
  return sum;
}

Rows rows_of(const RowBlock& block, std::vector<std::int64_t> numbers, const std::byte* whole) {
  std::byte* values = nullptr;
  Rows rows = allocate_rows(block, std::move(numbers), values);
  for (std::size_t i = 0; i < rows.numbers.size(); ++i) {
    std::memcpy(values + i * block.row_bytes(), whole + rows.numbers[i] * block.row_bytes(),
                block.row_bytes());
  }
  return rows;
}

void put_rows(const RowBlock& block, const Rows& rows, std::byte* whole) {
  for (std::size_t i = 0; i < rows.numbers.size(); ++i) {
    std::memcpy(whole + rows.numbers[i] * block.row_bytes(), rows.row(i, block), block.row_bytes());
  }
}

}  // namespace autodist::exec
