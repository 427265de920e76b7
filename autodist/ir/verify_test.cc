#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/own_ops.h"
#include "autodist/ir/testing/random_graph.h"

namespace autodist::ir {
namespace {

// x, w -> mm (0) -> mul_ in place (1) -> sum (2), dw = mm (3)
Graph small_graph() {
  GraphBuilder step("small");
  const ValueId x = step.input("x", contiguous({batch(), 4}));
  const ValueId w = step.variable("w", contiguous({4, 4}));
  step.variable("v", contiguous({4}));
  step.buffer("b", contiguous({4}));
  const ValueId y = step.op("aten::mm", {x, w}, contiguous({batch(), 4}));
  const ValueId z = step.in_place("aten::mul_", {y, 2.0});
  step.output(step.op("aten::sum", {z}, contiguous({})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {z, x}, contiguous({4, 4})));
  return step.finish();
}

void expect_refusal(const std::function<void(Graph&)>& damage, const std::string& message) {
  Graph graph = small_graph();
  damage(graph);
  try {
    verify(graph, "file.adg");
    FAIL() << "accepted, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(std::string(error.what()), "file.adg: " + message);
  }
}

TEST(Verify, AcceptsWhatTheBuilderMakes) {
  EXPECT_NO_THROW(verify(small_graph(), "small"));
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) EXPECT_NO_THROW(verify(random_graph(random), "random"));
}

TEST(Verify, NamesAnIdThatIsOutOfRange) {
  expect_refusal([](Graph& g) { g.ops[0].arguments[0] = ValueId(99); },
                 "op 0 (aten::mm) names value %99 of 8");
  expect_refusal([](Graph& g) { g.ops[0].results[0] = ValueId(99); },
                 "op 0 (aten::mm) names value %99 of 8");
  expect_refusal([](Graph& g) { g.ops[0].scope = ScopeId(3); },
                 "op 0 (aten::mm in ?) has scope 3 of 1");
  expect_refusal([](Graph& g) { g.values[4].storage = StorageId(50); },
                 "value %4 has storage 50 of 7");
  expect_refusal([](Graph& g) { g.slot_count = 1; }, "value %1 has slot 1 of 1");
  expect_refusal([](Graph& g) { g.slot_count = 1'000'000'000; }, "1000000000 slots for 8 values");
  expect_refusal([](Graph& g) { g.ops[1].writes = {7}; },
                 "op 1 (aten::mul_) writes argument 7, which is no tensor");
  expect_refusal([](Graph& g) { g.ops[1].writes = {1}; },
                 "op 1 (aten::mul_) writes argument 1, which is no tensor");
  expect_refusal(
      [](Graph& g) {
        g.clips = {{1.0, {VariableId(9)}}};
      },
      "a clip names variable 9 of 2");
  expect_refusal([](Graph& g) { g.outputs = {ValueId(9)}; }, "an output is value %9 of 8");
}

TEST(Verify, RefusesAValueThatIsReadBeforeItExists) {
  expect_refusal([](Graph& g) { std::swap(g.ops[0], g.ops[3]); },
                 "op 0 (aten::mm) reads %5 before any op makes it");
}

TEST(Verify, RefusesAVersionThatGoesBack) {
  expect_refusal([](Graph& g) { g.ops[2].arguments[0] = ValueId(4); },
                 "op 2 (aten::sum) reads version 0 of %4, which was overwritten (now version 1)");
}

TEST(Verify, RefusesAResultWithTheWrongVersion) {
  expect_refusal([](Graph& g) { g.values[5].version = 7; },
                 "op 1 (aten::mul_) makes version 7 of %5, expected version 1");
}

TEST(Verify, RefusesAnOpThatWritesAVariable) {
  expect_refusal([](Graph& g) { g.ops[0].writes = {1}; },
                 "op 0 (aten::mm) writes a variable; only its update may");
}

TEST(Verify, RefusesTimesOfAVariableThatContradictTheOps) {
  expect_refusal([](Graph& g) { g.variables[0].first_use = OpId(1); },
                 "first use of 'w' is op 1, the ops say 0");
  expect_refusal([](Graph& g) { g.variables[0].last_read.reset(); },
                 "last read of 'w' is op none, the ops say 0");
  expect_refusal([](Graph& g) { g.variables[0].gradient_complete = OpId(2); },
                 "the end of the gradient of 'w' is op 2, the ops say 3");
  expect_refusal([](Graph& g) { g.variables[1].first_use = OpId(1); },
                 "first use of 'v' is op 1, the ops say none");
  expect_refusal([](Graph& g) { g.buffers[0].mutated = true; },
                 "buffer 'b' is said to be mutated, the ops say otherwise");
}

TEST(Verify, RefusesAGradientThatNoOpMakes) {
  expect_refusal([](Graph& g) { g.variables[1].gradient = ValueId(0); },
                 "the gradient of 'v' is made by no op");
}

TEST(Verify, RefusesTwoTensorsOfOneName) {
  expect_refusal([](Graph& g) { g.variables[1].name = "w"; },
                 "two tensors are named 'w' (one a variable)");
  expect_refusal([](Graph& g) { g.variables[1].aliases = {"w"}; },
                 "two tensors are named 'w' (one a variable)");
}

TEST(Verify, RefusesAVariableWhoseShapeDependsOnTheBatch) {
  expect_refusal(
      [](Graph& g) {
        g.values[1].type.sizes[0] = {1, 0};
      },
      "the shape of variable 'w' depends on the batch");
}

TEST(Verify, RefusesTwoStoragesInOneSlot) {
  expect_refusal([](Graph& g) { g.values[6].slot = g.values[0].slot; },
                 "slot 0 is a view of storage 0 and, as value %6, of storage 5");
}

TEST(Verify, RefusesAGuardThatIsNotTheNext) {
  const auto with = [](std::int64_t before, Phase phase, const char* name = kGuardOp) {
    return [=](Graph& g) {
      Op guard;
      guard.name = name;
      guard.arguments = {ValueId(0), true, Affine{0, before}};
      guard.phase = phase;
      g.ops.push_back(guard);
    };
  };
  Graph graph = small_graph();
  with(0, Phase::kForward)(graph);
  verify(graph, "file.adg");
  EXPECT_EQ(booleans_of(graph), std::vector<bool>{true});
  const char* const kMessage =
      "op 4 (autodist::guard): (tensor, Boolean, 0) in the forward pass expected of a guard";
  expect_refusal(with(1, Phase::kForward), kMessage);
  expect_refusal(with(0, Phase::kBackward), kMessage);
  expect_refusal(
      with(0, Phase::kForward, kSizeGuardOp),
      "op 4 (autodist::size_guard): (tensor, integer, 0) in the forward pass expected of a guard");
}

}  // namespace
}  // namespace autodist::ir
