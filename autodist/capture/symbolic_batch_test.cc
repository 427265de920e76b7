#include "autodist/capture/symbolic_batch.h"

#include <gtest/gtest.h>

namespace autodist::capture {
namespace {

TEST(Fit, IntegersLieOnALineThroughTwoBatches) {
  EXPECT_EQ(fit(2, std::int64_t{20}, 3, std::int64_t{30}), (ir::Affine{10, 0}));
  EXPECT_EQ(fit(2, std::int64_t{7}, 3, std::int64_t{7}), (ir::Affine{0, 7}));
  EXPECT_EQ(fit(2, std::int64_t{5}, 4, std::int64_t{9}), (ir::Affine{2, 1}));
  EXPECT_FALSE(fit(2, std::int64_t{5}, 4, std::int64_t{8}));
  EXPECT_FALSE(fit(4, std::int64_t{5}, 4, std::int64_t{6}));
}

TEST(Fit, ARealNumberIsAnIntegerOrAReciprocalOrNothing) {
  EXPECT_EQ(fit(2, 2.0, 3, 3.0), (ir::Quotient{{1, 0}, {0, 1}}));
  EXPECT_EQ(fit(2, 1.0 / 20, 3, 1.0 / 30), (ir::Quotient{{0, 1}, {10, 0}}));
  EXPECT_EQ(fit(2, -1.0 / 2, 3, -1.0 / 3), (ir::Quotient{{0, 1}, {-1, 0}}));
  EXPECT_FALSE(fit(2, 0.9, 3, 0.81));
  EXPECT_EQ(fit(2, 1.0 / 20, 3, 1.0 / 30)->at(7), 1.0 / 70);
}

// input -> op with a list argument -> result
ir::Graph recording(std::int64_t batch, std::int64_t number) {
  ir::Graph graph;
  graph.example_batch = batch;
  graph.scopes = {"", "layer"};
  graph.storages = {{ir::StorageKind::kInput, {0, batch * 4}},
                    {ir::StorageKind::kIntermediate, {0, batch * 4}}};
  ir::TensorType type;
  type.sizes = {{0, batch}};
  type.strides = {{0, 1}};
  graph.values = {{ir::StorageId(0), 0, ir::SlotId(0), type},
                  {ir::StorageId(1), 0, ir::SlotId(1), type}};
  graph.slot_count = 2;
  graph.inputs = {{"x", ir::ValueId(0), true}};
  ir::Op op;
  op.name = "aten::expand";
  op.scope = ir::ScopeId(1);
  op.arguments = {ir::ValueId(0), std::vector<ir::Affine>{{0, number}}};
  op.results = {ir::ValueId(1)};
  graph.ops = {op};
  return graph;
}

TEST(Unify, EveryIntegerThatDiffersBecomesAffine) {
  const Unified unified = unify(recording(3, 13), recording(2, 9));
  EXPECT_EQ(unified.difference, "");
  EXPECT_EQ(std::get<std::vector<ir::Affine>>(unified.graph.ops[0].arguments[1])[0],
            (ir::Affine{4, 1}));
  EXPECT_EQ(unified.graph.values[1].type.sizes[0], (ir::Affine{1, 0}));
  EXPECT_EQ(unified.graph.storages[0].bytes, (ir::Affine{4, 0}));
}

TEST(Unify, WithOneBatchEveryNumberMustBeEqual) {
  EXPECT_EQ(unify(recording(3, 13), recording(3, 13)).difference, "");
  EXPECT_EQ(unify(recording(3, 13), recording(3, 14)).difference,
            "aten::expand in layer has 13 with 3 samples and 14 with 3");
}

TEST(Unify, NamesTheFirstOpThatDiffers) {
  ir::Graph other = recording(2, 9);
  other.ops[0].name = "aten::view";
  EXPECT_EQ(unify(recording(3, 13), other).difference,
            "the step does aten::expand in layer in one run (3 samples) where it does aten::view "
            "in layer in another (2)");
}

TEST(Unify, NamesAConstantByItsReader) {
  ir::Graph a = recording(3, 13);
  ir::Graph b = recording(2, 9);
  a.constants = {{"", ir::ValueId(0), {1, 2}, ""}};
  b.constants = {{"", ir::ValueId(0), {3, 4}, ""}};
  EXPECT_EQ(unify(a, b).difference,
            "aten::expand in layer reads a tensor that was made on the host and differs between "
            "two runs");
}

}  // namespace
}  // namespace autodist::capture
