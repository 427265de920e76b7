#include "autodist/program/slice_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace autodist::program {
namespace {

// One variable [3, 4]: row-major elements 0 … 11.
Program program_with(const Shard& shard) {
  auto graph = std::make_shared<ir::Graph>();
  ir::TensorType type;
  type.sizes = {{0, 3}, {0, 4}};
  graph->values = {{ir::StorageId(0), 0, ir::SlotId(0), type}};
  graph->variables.resize(1);
  Program program;
  program.graph = graph;
  program.shards = {shard};
  return program;
}

Slice slice_of(std::int64_t begin, std::int64_t end) {
  Slice slice;
  slice.pieces = {{ShardId(0), begin, end}};
  return slice;
}

std::vector<float> packed(const Program& program, const Slice& slice) {
  std::vector<float> variable(12);
  std::iota(variable.begin(), variable.end(), 0.0F);
  std::vector<float> result(element_count(slice));
  for (const PieceLayout& piece : layout_of(program, slice)) {
    pack(piece, sizeof(float), reinterpret_cast<const std::byte*>(variable.data()),
         reinterpret_cast<std::byte*>(result.data()));
  }
  return result;
}

TEST(SliceLayout, AShardOfRowsIsOneRun) {
  const Program program = program_with({ir::VariableId(0), "w", 0, 1, 3, 8});
  const auto pieces = layout_of(program, slice_of(2, 7));
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_EQ(pieces[0].runs, (std::vector<ElementRun>{{0, 6, 5}}));
}

TEST(SliceLayout, AShardOfColumnsIsPackedRowByRow) {
  const Program program = program_with({ir::VariableId(0), "w", 1, 1, 3, 6});
  EXPECT_EQ(packed(program, slice_of(0, 6)), (std::vector<float>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(packed(program, slice_of(1, 4)), (std::vector<float>{2, 5, 6}));
}

TEST(SliceLayout, AllColumnsAreOneRunAgain) {
  const Program program = program_with({ir::VariableId(0), "w", 1, 0, 4, 12});
  EXPECT_EQ(layout_of(program, slice_of(0, 12))[0].runs, (std::vector<ElementRun>{{0, 0, 12}}));
}

TEST(SliceLayout, UnpackingPutsBackWhatPackingTook) {
  const Program program = program_with({ir::VariableId(0), "w", 1, 2, 4, 6});
  const Slice slice = slice_of(1, 6);
  const std::vector<float> bytes = packed(program, slice);
  std::vector<float> variable(12, -1);
  unpack(layout_of(program, slice)[0], sizeof(float),
         reinterpret_cast<const std::byte*>(bytes.data()),
         reinterpret_cast<std::byte*>(variable.data()));
  EXPECT_EQ(variable, (std::vector<float>{-1, -1, -1, 3, -1, -1, 6, 7, -1, -1, 10, 11}));
}

}  // namespace
}  // namespace autodist::program
