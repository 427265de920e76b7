#include "autodist/ir/factors.h"

#include <gtest/gtest.h>

#include "autodist/ir/graph_builder.h"

namespace autodist::ir {
namespace {

TEST(Factors, AreTheOperandsOfTheProductThatIsTheGradient) {
  GraphBuilder step("linear", 4);
  const ValueId x = step.input("x", contiguous({batch(), 8}));
  const ValueId w = step.variable("w", contiguous({5, 8}));
  const ValueId b = step.variable("b", contiguous({5}));
  const ValueId w_t = step.view("aten::t", w, contiguous({8, 5}));
  const ValueId y = step.op("aten::addmm", {b, x, w_t}, contiguous({batch(), 5}));
  step.output(step.op("aten::sum", {y}, contiguous({})));
  step.backward();
  const ValueId dy = step.op("aten::ones_like", {y}, contiguous({batch(), 5}));
  const ValueId dy_t = step.view("aten::t", dy, contiguous({Size(5), batch()}));
  step.gradient(w, step.op("aten::mm", {dy_t, x}, contiguous({5, 8})));
  step.gradient(b, step.op("aten::sum", {dy}, contiguous({5})));
  const Graph graph = step.finish();

  const auto factors = factors_of(graph, VariableId(0));
  ASSERT_TRUE(factors);
  EXPECT_EQ(graph.op(factors->product).name, "aten::mm");
  EXPECT_EQ(factors->left, dy_t);
  EXPECT_EQ(factors->right, x);
  EXPECT_EQ(element_count(graph, *factors, 4), 4 * (5 + 8));
  EXPECT_EQ(element_count(graph, *factors, 9), 9 * (5 + 8));
  EXPECT_FALSE(factors_of(graph, VariableId(1))) << "the bias's gradient is a sum";
}

TEST(Factors, AVariableThatIsUsedTwiceHasNoFactors) {
  GraphBuilder step("tied", 4);
  const ValueId x = step.input("x", contiguous({batch(), 6}));
  const ValueId w = step.variable("w", contiguous({6, 6}));
  const ValueId y = step.op("aten::mm", {x, w}, contiguous({batch(), 6}));
  step.output(step.op("aten::sum", {y}, contiguous({})));
  step.backward();
  const ValueId x_t = step.view("aten::t", x, contiguous({Size(6), batch()}));
  const ValueId first = step.op("aten::mm", {x_t, y}, contiguous({6, 6}));
  const ValueId second = step.op("aten::mm", {x_t, x}, contiguous({6, 6}));
  step.gradient(w, step.op("aten::add", {first, second}, contiguous({6, 6})));
  EXPECT_FALSE(factors_of(step.finish(), VariableId(0)));
}

}  // namespace
}  // namespace autodist::ir
