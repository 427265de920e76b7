#include <gtest/gtest.h>

#include <random>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/history.h"
#include "autodist/ir/testing/random_graph.h"

namespace autodist::ir {
namespace {

using Ops = std::vector<OpId>;

TEST(Dependencies, AReaderWaitsForTheMakerOfItsValue) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({batch(), 4}));
  const ValueId y = step.op("aten::relu", {x}, contiguous({batch(), 4}));
  step.op("aten::sum", {y}, contiguous({}));
  EXPECT_EQ(dependencies(step.finish()), (std::vector<Ops>{{}, {OpId(0)}}));
}

TEST(Dependencies, AWriterWaitsForAllReadersOfTheOldVersionAndReadersForTheWriter) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({4}));
  const ValueId y = step.op("aten::relu", {x}, contiguous({4}));  // 0
  step.op("aten::sum", {y}, contiguous({}));                      // 1
  step.op("aten::mean", {y}, contiguous({}));                     // 2
  const ValueId z = step.in_place("aten::mul_", {y, 2.0});        // 3
  step.op("aten::sum", {z}, contiguous({}));                      // 4
  step.in_place("aten::mul_", {z, 2.0});                          // 5
  // 4 and 5 also wait for 0, which made the view that they read.
  EXPECT_EQ(dependencies(step.finish()), (std::vector<Ops>{{},
                                                           {OpId(0)},
                                                           {OpId(0)},
                                                           {OpId(0), OpId(1), OpId(2)},
                                                           {OpId(0), OpId(3)},
                                                           {OpId(0), OpId(3), OpId(4)}}));
}

TEST(Dependencies, AWriteThroughOneViewIsSeenThroughTheOther) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({4}));
  const ValueId y = step.op("aten::relu", {x}, contiguous({4}));       // 0
  const ValueId row = step.view("aten::view", y, contiguous({2, 2}));  // 1
  step.in_place("aten::mul_", {y, 2.0});                               // 2
  step.op("aten::sum", {row}, contiguous({}));                         // 3
  EXPECT_EQ(dependencies(step.finish()),
            (std::vector<Ops>{{}, {OpId(0)}, {OpId(0), OpId(1)}, {OpId(1), OpId(2)}}));
}

TEST(Dependencies, RandomOpsKeepTheirOrder) {
  GraphBuilder step("g");
  const ValueId x = step.input("x", contiguous({4}));
  Effects random;
  random.random = true;
  step.op("aten::rand_like", {x}, contiguous({4}), random);
  step.op("aten::relu", {x}, contiguous({4}));
  step.op("aten::rand_like", {x}, contiguous({4}), random);
  EXPECT_EQ(dependencies(step.finish()), (std::vector<Ops>{{}, {}, {OpId(0)}}));
}

TEST(Analyse, CountsReadsOfAVariableThroughItsViewsAndItsLastContribution) {
  GraphBuilder step("tied");
  const ValueId x = step.input("x", contiguous({batch(), 4}));
  const ValueId w = step.variable("w", contiguous({4, 4}));
  const ValueId unused = step.variable("unused", contiguous({4}));
  step.op("aten::relu", {x}, contiguous({batch(), 4}));                       // 0
  const ValueId w_t = step.view("aten::t", w, contiguous({4, 4}));            // 1
  const ValueId y = step.op("aten::mm", {x, w_t}, contiguous({batch(), 4}));  // 2
  step.backward();
  const ValueId first = step.op("aten::mm", {y, x}, contiguous({4, 4}));   // 3
  const ValueId second = step.op("aten::mm", {x, y}, contiguous({4, 4}));  // 4
  const ValueId sum = step.in_place("aten::add_", {first, second});        // 5
  step.op("aten::mm", {y, w_t}, contiguous({batch(), 4}));                 // 6
  step.gradient(w, sum);
  const Graph graph = step.finish();
  EXPECT_EQ(graph.variables[0].first_use, OpId(1));
  EXPECT_EQ(graph.variables[0].gradient_complete, OpId(5));
  EXPECT_EQ(graph.variables[0].last_read, OpId(6));
  EXPECT_EQ(graph.variables[1].value, unused);
  EXPECT_FALSE(graph.variables[1].first_use);
  EXPECT_FALSE(graph.variables[1].gradient_complete);
}

TEST(Analyse, FindsTheBuffersThatAnOpWritesWithoutReturningThem) {
  GraphBuilder step("norm");
  const ValueId x = step.input("x", contiguous({batch(), 4}));
  const ValueId mean = step.buffer("running_mean", contiguous({4}));
  step.buffer("table", contiguous({4}));
  Effects writes_mean;
  writes_mean.writes = {1};
  step.op("aten::native_batch_norm", {x, mean}, contiguous({batch(), 4}), writes_mean);
  step.op("aten::relu", {mean}, contiguous({4}));
  const Graph graph = step.finish();
  EXPECT_TRUE(graph.buffers[0].mutated);
  EXPECT_FALSE(graph.buffers[1].mutated);
  EXPECT_EQ(dependencies(graph)[1], Ops{OpId(0)});
}

// Whatever order respects dependencies(), every op sees the versions that it saw in the recorded
// order.
TEST(Dependencies, AnyOrderThatRespectsThemReadsTheSameVersions) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    const Graph graph = random_graph(random);
    const auto before = dependencies(graph);
    std::vector<bool> done(graph.ops.size());
    std::vector<std::uint32_t> versions(graph.storages.size());
    for (std::size_t count = 0; count < graph.ops.size(); ++count) {
      Ops ready;
      for (std::size_t i = 0; i < graph.ops.size(); ++i) {
        bool free = !done[i];
        for (OpId other : before[i]) free = free && done[other.value];
        if (free) ready.push_back(OpId(i));
      }
      ASSERT_FALSE(ready.empty());
      const OpId next = ready[random() % ready.size()];
      for_each_read(graph.op(next), [&](ValueId read) {
        EXPECT_EQ(versions[graph.value(read).storage.value], graph.value(read).version);
      });
      for (StorageId written : written_storages(graph, graph.op(next))) ++versions[written.value];
      done[next.value] = true;
    }
  }
}

}  // namespace
}  // namespace autodist::ir
