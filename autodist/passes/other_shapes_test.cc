#include <gtest/gtest.h>

#include <memory>

#include "autodist/base/error.h"
#include "autodist/ir/history.h"
#include "autodist/passes/pipeline.h"
#include "autodist/passes/testing/small_jobs.h"

namespace autodist::passes {
namespace {

program::Program program_of(const ir::Graph& graph, bool collectives) {
  const cluster::Cluster cluster = hosts(2);
  const strategy::Strategy strategy = plan(
      graph, cluster, [&](std::size_t) { return collectives ? library(0) : ps("10.0.0.1:CPU:0"); });
  return rewrite(std::make_shared<const ir::Graph>(graph), strategy, cluster, {}, "test");
}

// The graph without the gradient of its last variable, as if the batch did not reach it.
ir::Graph without_last_gradient(ir::Graph graph) {
  graph.variables.back().gradient.reset();
  ir::analyse(graph);
  return graph;
}

std::size_t contributions(const program::Program& program) {
  std::size_t count = 0;
  for (const program::Instruction& each : program.roles.front().streams.front().instructions) {
    count += std::holds_alternative<program::Contribute>(each) ? 1 : 0;
  }
  return count;
}

TEST(OtherShapes, KeepsTheTablesAndTheOrderOfCollectives) {
  for (const bool collectives : {false, true}) {
    const program::Program program = program_of(two_layers(), collectives);
    const program::Program other = for_other_shapes(program, without_last_gradient(two_layers()));
    EXPECT_EQ(other.slices, program.slices);
    EXPECT_EQ(other.shards, program.shards);
    EXPECT_EQ(other.collectives, program.collectives);
    EXPECT_EQ(other.variables, program.variables);
    ASSERT_EQ(other.roles.size(), program.roles.size());
    if (collectives) {
      EXPECT_EQ(other.roles.front().streams.at(1), program.roles.front().streams.at(1));
    }
  }
}

TEST(OtherShapes, AnUnusedVariableContributesZeros) {
  const program::Program program = program_of(two_layers(), false);
  const program::Program other = for_other_shapes(program, without_last_gradient(two_layers()));
  EXPECT_EQ(contributions(other), contributions(program));
  EXPECT_EQ(other.graph->ops.back().name, "aten::zeros_like");
  EXPECT_EQ(other.graph->variables.back().gradient_complete, ir::OpId(other.graph->ops.size() - 1));
}

TEST(OtherShapes, RefusesAVariableThatThePlanDoesNotKnow) {
  const program::Program program = program_of(without_last_gradient(two_layers()), false);
  try {
    for_other_shapes(program, two_layers());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'fc2.bias'"), std::string::npos) << error.what();
  }
}

TEST(OtherShapes, RefusesAnotherModel) {
  const program::Program program = program_of(two_layers(), false);
  EXPECT_THROW(for_other_shapes(program, tied_layers()), Error);
}

}  // namespace
}  // namespace autodist::passes
