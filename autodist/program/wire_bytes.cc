#include "autodist/program/wire_bytes.h"

#include <algorithm>

#include "autodist/ir/factors.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/rows.h"

namespace autodist::program {
namespace {

constexpr std::int64_t kRowNumber = 8;  // bytes

ir::VariableId variable_of(const Program& program, const Slice& slice) {
  return program.shard(slice.pieces.front().shard).variable;
}

// Elements of one row.
std::int64_t width_of(const Program& program, const Slice& slice) {
  const ir::VariableId variable = variable_of(program, slice);
  const std::int64_t table = ir::shape_of(*program.graph, variable)[0];
  return std::max<std::int64_t>(
      1, element_count(*program.graph, variable) / std::max<std::int64_t>(1, table));
}

}  // namespace

std::int64_t touched_rows(const Program& program, const Slice& slice, std::int64_t batch) {
  const ir::Graph& graph = *program.graph;
  const ir::VariableId variable = variable_of(program, slice);
  const std::int64_t rows = element_count(slice) / width_of(program, slice);
  const auto read = rows_read(graph, variable);
  if (!read) return rows;
  std::int64_t lookups = 0;
  for (ir::ValueId numbers : *read) {
    lookups += element_count(graph.value(numbers).type).at(batch);
  }
  const std::int64_t table = std::max<std::int64_t>(1, ir::shape_of(graph, variable)[0]);
  return std::min(rows, (lookups * rows + table - 1) / table);
}

SliceBytes wire_bytes(const Program& program, const Slice& slice, std::int64_t batch) {
  if (slice.sufficient_factors) {
    const auto factors = ir::factors_of(*program.graph, variable_of(program, slice));
    const std::int64_t elements = element_count(*program.graph, *factors, batch);
    return {Bytes(elements * static_cast<std::int64_t>(size_of(slice.dtype))), {}, {}, {}};
  }
  if (slice.rows == RowTransfer::kNone) {
    return {contribution_bytes(slice), result_bytes(slice), {}, {}};
  }
  const std::int64_t width = width_of(program, slice);
  const std::int64_t row = width * static_cast<std::int64_t>(size_of(slice.dtype));
  const std::int64_t rows = touched_rows(program, slice, batch);
  const std::int64_t all = element_count(slice) / width;
  const std::int64_t dense = (all + 63) / 64 * 8 + all * row;  // the longest form: a bit per row
  const auto listed = [&](std::int64_t count) {
    return Bytes(std::min(count * (row + kRowNumber), dense));
  };
  const auto members = static_cast<std::int64_t>(slice.members.size());
  switch (slice.rows) {
    case RowTransfer::kFetch:
      return {listed(rows), Bytes{}, Bytes(rows * kRowNumber), Bytes(rows * row)};
    case RowTransfer::kReturn:
      return {listed(rows), listed(std::min(all, rows * members)), {}, {}};
    case RowTransfer::kGather:
    case RowTransfer::kNone:
      break;
  }
  return {listed(rows), {}, {}, {}};
}

}  // namespace autodist::program
