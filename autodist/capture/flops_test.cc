#include "autodist/capture/flops.h"

#include <gtest/gtest.h>

#include "autodist/ir/graph_builder.h"

namespace autodist::capture {
namespace {

using ir::Affine;
using ir::batch;
using ir::contiguous;
using ir::GraphBuilder;
using ir::ValueId;

TEST(Flops, AMatrixProductTakesTwoPerMultiplyAdd) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 8}));
  const ValueId w = step.variable("w", contiguous({8, 5}));
  const ValueId b = step.variable("b", contiguous({5}));
  step.op("aten::mm", {x, w}, contiguous({batch(), 5}));
  step.op("aten::addmm", {b, x, w}, contiguous({batch(), 5}));
  ir::Graph graph = step.finish();
  count_work(graph);
  EXPECT_EQ(graph.ops[0].flops, (Affine{2 * 8 * 5, 0}));
  EXPECT_EQ(graph.ops[1].flops, (Affine{2 * 8 * 5, 0}));
  EXPECT_EQ(graph.ops[0].bytes_moved, (Affine{4 * (8 + 5), 4 * 40}));
}

// ResNet's first layer: 7 x 7, 3 -> 64 channels, 224 -> 112: 118,013,952 multiply-adds.
TEST(Flops, AConvolutionAsPublished) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 3, 224, 224}));
  const ValueId w = step.variable("w", contiguous({64, 3, 7, 7}));
  const std::vector<Affine> two = {{0, 2}, {0, 2}};
  step.op("aten::convolution", {x, w, ir::None{}, two, two, two, false, two, Affine{0, 1}},
          contiguous({batch(), 64, 112, 112}));
  ir::Graph graph = step.finish();
  count_work(graph);
  EXPECT_EQ(graph.ops[0].flops, (Affine{2 * 118'013'952LL, 0}));
}

TEST(Flops, AViewMovesNothingAndAnUnknownOpHasNoFormula) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 8}));
  step.view("aten::view", x, contiguous({batch(), 2, 4}));
  step.op("aten::_mystery", {x}, contiguous({batch(), 8}));
  ir::Graph graph = step.finish();
  count_work(graph);
  EXPECT_EQ(graph.ops[0].bytes_moved, Affine{});
  EXPECT_EQ(graph.ops[1].flops, Affine{});
  EXPECT_EQ(graph.ops[1].bytes_moved, (Affine{64, 0}));
}

}  // namespace
}  // namespace autodist::capture
