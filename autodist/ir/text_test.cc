#include "autodist/ir/text.h"

#include <gtest/gtest.h>

#include "autodist/ir/graph_builder.h"
#include "autodist/ir/graph_text.h"

namespace autodist::ir {
namespace {

TEST(Text, PrintsNumbersThatDependOnTheBatch) {
  EXPECT_EQ(to_string(Affine{0, 7}), "7");
  EXPECT_EQ(to_string(Affine{1, 0}), "B");
  EXPECT_EQ(to_string(Affine{3, 2}), "3B+2");
  EXPECT_EQ(to_string(Affine{-1, -1}), "-B-1");
}

TEST(Text, PrintsStridesOnlyWhereTheyAreNotRowMajor) {
  EXPECT_EQ(to_string(contiguous({batch(), 3, 5})), "f32[B, 3, 5]");
  TensorType transposed = contiguous({4, 8});
  transposed.strides = {{0, 1}, {0, 4}};
  transposed.offset = {0, 2};
  EXPECT_EQ(to_string(transposed), "f32[4, 8] strides[1, 4] offset=2");
}

TEST(Text, AlignsColumnsOfWideCharactersToo) {
  EXPECT_EQ(align({{"µs", "1", "x"}, {"a", "100", "y"}}, "  ", {1}),
            "  µs    1  x\n  a   100  y\n");
}

TEST(Text, SaysHowLongTheSequencesOfABatchAre) {
  GraphBuilder words("words", 2);
  words.input("source", contiguous({batch(), 30}, DType::kInt64));
  words.input("target", contiguous({batch(), 25}, DType::kInt64));
  words.variable("w", contiguous({8, 4}));
  EXPECT_EQ(batch_text(words.finish(), 16, "float32"), "16 sequences of 30, float32");
  GraphBuilder rows("rows", 2);
  rows.input("x", contiguous({batch(), 8}));
  rows.input("label", contiguous({batch()}, DType::kInt64));
  EXPECT_EQ(batch_text(rows.finish(), 16, "bf16"), "16, bf16");
}

TEST(GraphText, ReadsLikeTheStep) {
  GraphBuilder step("tiny", 2);
  const ValueId x = step.input("x", contiguous({batch(), 8}));
  const ValueId w =
      step.variable("fc.weight", contiguous({8, 4}), UpdateRule{Rule::kSgd, {{"lr", 0.1}}, ""});
  step.variable("unused", contiguous({4}));
  const ValueId mean = step.buffer("running_mean", contiguous({4}));
  const ValueId mask = step.constant("", contiguous({4}, DType::kBool), std::string(4, '\1'));
  step.scope("fc");
  Effects costs;
  costs.cost = {Seconds{0.001}, Seconds{0.0001}};
  costs.flops = {64'000'000, 0};
  const ValueId y = step.op("aten::mm", {x, w}, contiguous({batch(), 4}), costs);
  Effects writes;
  writes.writes = {1};
  writes.random = true;
  const ValueId z =
      step.op("aten::norm",
              {y, mean, mask, None{}, 0.5, true, "reflect", std::vector<Affine>{{0, 2}, {1, 0}}},
              contiguous({batch(), 4}), writes);
  step.in_place("aten::relu_", {z, mean});
  step.scope("");
  step.output(step.op("aten::sum", {z}, contiguous({})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, z}, contiguous({8, 4})));
  EXPECT_EQ(to_text(step.finish()),
            R"(graph "tiny" libtorch=none example_batch=2 batch=symbolic reduction=mean
peak_bytes 64B+296

inputs:
  %x  f32[B, 8]  batched

variables:
  fc.weight  f32[8, 4]  ops 0..0 gradient=%10 complete=4  sgd lr=0.1
  unused     f32[4]     unread no gradient                sgd

buffers:
  running_mean  f32[4]  mutated

constants:
  %4  bool[4]  digest=36c1c489e531d74963be1b784a82604f

ops:  # number, module, phase, time and work at batch 2
  %5: f32[B, 4] = aten::mm(%x, fc.weight)  # 0 fc fwd 1.20 ms 128.00 MFLOP
  %6: f32[B, 4] = aten::norm(%5, !running_mean, %4, none, 0.5, true, "reflect", [2, B])  # 1 fc fwd random
  %8: f32[B, 4] = aten::relu_(!%6, running_mean@1)  # 2 fc fwd
  %9: f32[] = aten::sum(%8)  # 3 fwd
  %10: f32[8, 4] = aten::mm(%x, %8)  # 4 bwd

outputs: %9
)");
}

}  // namespace
}  // namespace autodist::ir
