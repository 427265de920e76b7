#include "autodist/ir/liveness.h"

#include <gtest/gtest.h>

#include "autodist/ir/graph_builder.h"
#include "autodist/ir/op_classes.h"

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

// a (40) and b (20) are alive while the second op has 100 for itself, per sample.
TEST(Liveness, WhatAKernelAllocatesCountsWhileItsOpRuns) {
  GraphBuilder step("g");
  Effects effects;
  effects.cost.scratch = {100, 0};
  const ValueId x = step.input("x", contiguous({batch(), 10}));
  const ValueId a = step.op("aten::exp", {x}, contiguous({batch(), 10}));
  const ValueId b = step.op("aten::slice", {a}, contiguous({batch(), 5}), effects);
  step.output(step.op("aten::exp", {b}, contiguous({batch(), 5})));
  const Graph graph = step.finish();
  EXPECT_EQ(peak_bytes(graph, 3), 3 * (40 + 40 + 20 + 100));
  EXPECT_EQ(activation_bytes_as_captured(graph, 3), 3 * (40 + 40 + 20 + 100));
  EXPECT_EQ(activation_bytes(graph, 3), 3 * (40 + 40 + 20));
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

// Two layers with a ReLU between them, and softmax with a loss behind.
TEST(Autocast, HalvesWhatMatrixUnitsMakeAndCopiesWhatTheyReadInFloat32) {
  GraphBuilder step("g");
  const TensorType hidden = contiguous({batch(), 100});
  const TensorType classes = contiguous({batch(), 50});
  const ValueId x = step.input("x", contiguous({batch(), 10}));
  const ValueId w = step.variable("w", contiguous({10, 100}));
  const ValueId v = step.variable("v", contiguous({100, 50}));
  const ValueId y = step.op("aten::mm", {x, w}, hidden);
  const ValueId z = step.op("aten::relu", {y}, hidden);
  const ValueId o = step.op("aten::mm", {z, v}, classes);
  const ValueId s = step.op("aten::_log_softmax", {o}, classes);
  step.output(step.op("aten::nll_loss_forward", {s}, contiguous({})));
  step.backward();
  const ValueId ds = step.op("aten::nll_loss_backward", {s}, classes);
  const ValueId d = step.op("aten::_log_softmax_backward_data", {ds, s}, classes);
  step.gradient(v, step.op("aten::mm", {z, d}, contiguous({100, 50})));
  const ValueId dz = step.op("aten::mm", {d, v}, hidden);
  const ValueId dy = step.op("aten::threshold_backward", {dz, z}, hidden);
  step.gradient(w, step.op("aten::mm", {x, dy}, contiguous({10, 100})));
  const Graph graph = step.finish();
  // In float32 most is alive in threshold_backward: x, z, dz, dy and the loss.
  EXPECT_EQ(activation_bytes(graph, 3), 3 * (40 + 3 * 400) + 4);
  // Under autocast in softmax's backward pass: x and its copy, z in 16 bits, s, ds and d in 32, the
  // copy of v and the loss; of a small batch no less, for w's copy is alive before alone.
  for (const std::int64_t batch : {1, 3, 100}) {
    EXPECT_EQ(activation_bytes_under_autocast(graph, batch),
              batch * (40 + 20 + 200 + 3 * 200) + 2 * 5000 + 4)
        << batch;
  }
}

TEST(Autocast, LeavesWhatReadsFloat32AndABatchNormFollowsItsFirstArgument) {
  GraphBuilder step("g");
  const TensorType wide = contiguous({batch(), 10});
  const ValueId x = step.input("x", wide);
  const ValueId w = step.variable("w", contiguous({10, 10}));
  const ValueId scale = step.variable("scale", contiguous({10}));
  const ValueId c = step.op("aten::convolution", {x, w}, wide);
  const ValueId n = step.op("aten::native_batch_norm", {c, scale}, wide);
  const ValueId sum = step.op("aten::add", {n, c}, wide);
  const ValueId widened = step.op("aten::add", {sum, x}, wide);
  step.output(step.op("aten::mul", {widened, x}, wide));
  const Graph graph = step.finish();
  // In the convolution x, its copy, c and the copy of w.
  EXPECT_EQ(activation_bytes_under_autocast(graph, 1), 40 + 20 + 20 + 200);
  // In the last op x and what it is added to and multiplied with, in 32 bits as x is; in the first
  // sum x, c, n and the sum, which are 40 + 3 * 20.
  EXPECT_EQ(activation_bytes_under_autocast(graph, 100), 100 * (40 + 40 + 40));
}

// Each of the two products keeps a copy of what it reads; of w there is one.
TEST(Autocast, CopiesAnActivationForEachOpThatReadsItAndAVariableOnce) {
  GraphBuilder step("g");
  const TensorType wide = contiguous({batch(), 10});
  const ValueId x = step.input("x", wide);
  const ValueId w = step.variable("w", contiguous({10, 10}));
  const ValueId a = step.op("aten::mm", {x, w}, wide);
  const ValueId b = step.op("aten::mm", {x, w}, wide);
  step.output(a);
  step.output(b);
  const Graph graph = step.finish();
  EXPECT_EQ(activation_bytes_under_autocast(graph, 7), 7 * (40 + 2 * 20 + 2 * 20) + 200);
}

TEST(OpClasses, KnowWhatOnlyAllocates) {
  for (const char* name : {"aten::empty", "aten::empty_like", "aten::empty_strided",
                           "aten::new_empty", "aten::new_empty_strided"}) {
    EXPECT_TRUE(leaves_uninitialised(name)) << name;
  }
  for (const char* name : {"aten::zeros", "aten::zeros_like", "aten::full", "aten::clone"}) {
    EXPECT_FALSE(leaves_uninitialised(name)) << name;
  }
}

}  // namespace
}  // namespace autodist::ir
