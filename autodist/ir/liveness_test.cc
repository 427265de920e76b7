#include "autodist/ir/liveness.h"

#include <gtest/gtest.h>

#include "autodist/ir/graph_builder.h"

namespace autodist::ir {
namespace {

// x (40) is there always; a (40) dies after b (20) is made; b is the output.
TEST(Liveness, TheHighestMomentCountsWhatIsAlive) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 10}));
  const ValueId a = step.op("aten::exp", {x}, contiguous({batch(), 10}));
  const ValueId b = step.op("aten::slice", {a}, contiguous({batch(), 5}));
  step.output(step.op("aten::exp", {b}, contiguous({batch(), 5})));
  const Graph graph = step.finish();
  EXPECT_EQ(peak_bytes(graph, 1), 40 + 40 + 20);
  EXPECT_EQ(peak_bytes(graph, 3), 3 * (40 + 40 + 20));
}

TEST(Liveness, ASlotIsFreedAfterTheLastOpThatNamesIt) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 10}));
  const ValueId a = step.op("aten::exp", {x}, contiguous({batch(), 10}));
  const ValueId b = step.op("aten::exp", {a}, contiguous({batch(), 10}));
  step.output(step.op("aten::add", {a, b}, contiguous({batch(), 10})));
  const Graph graph = step.finish();
  const auto freed = slots_freed_after(graph);
  EXPECT_TRUE(freed[0].empty());
  EXPECT_TRUE(freed[1].empty());
  EXPECT_EQ(freed[2],
            (std::vector<std::uint32_t>{graph.value(a).slot.value, graph.value(b).slot.value}));
}

// Of a wide layer the gradient is what most is alive with where the batch is small, and activations
// where it is large: no line through two batches has both.
TEST(Liveness, TheHighestMomentIsAnotherWithAnotherBatch) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 10}));
  const ValueId w = step.variable("w", contiguous({10, 100}));
  const ValueId y = step.op("aten::mm", {x, w}, contiguous({batch(), 100}));
  const ValueId z = step.op("aten::exp", {y}, contiguous({batch(), 100}));
  step.output(step.op("aten::sum", {z}, contiguous({})));
  step.backward();
  const ValueId d = step.op("aten::mul", {z, y}, contiguous({batch(), 100}));
  step.gradient(w, step.op("aten::mm", {x, d}, contiguous({10, 100})));
  const Graph graph = step.finish();
  const std::int64_t parameters = 4 * 10 * 100;
  const std::int64_t loss = 4;
  EXPECT_EQ(peak_bytes(graph, 1), parameters + 40 + loss + 400 + 4000);
  EXPECT_EQ(peak_bytes(graph, 100), parameters + 100 * 40 + loss + 3 * 40000);
  // x, y, z and d; the gradient is none of them.
  for (const std::int64_t batch : {1, 2, 100}) {
    EXPECT_EQ(activation_bytes(graph, batch), batch * (40 + 3 * 400) + loss) << batch;
  }
}

// What a sparse gradient was made of is its own memory.
TEST(Liveness, ASparseGradientsPartsAreNoActivations) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 10}));
  const ValueId w = step.variable("w", contiguous({10, 100}));
  const ValueId y = step.op("aten::exp", {x}, contiguous({batch(), 10}));
  step.output(y);
  step.backward();
  const ValueId values = step.op("aten::exp", {y}, contiguous({batch(), 100}));
  TensorType sparse = contiguous({10, 100});
  sparse.layout = Layout::kSparseCoo;
  sparse.strides.clear();
  step.gradient(w, step.op("aten::_sparse_coo_tensor_unsafe", {values}, sparse), true);
  const Graph graph = step.finish();
  EXPECT_EQ(activation_bytes(graph, 3), 3 * (40 + 40));
}

}  // namespace
}  // namespace autodist::ir
