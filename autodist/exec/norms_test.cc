#include "autodist/exec/norms.h"

#include <gtest/gtest.h>

#include <memory>

#include "autodist/base/check.h"

namespace autodist::exec {
namespace {

TEST(Norms, AddTheirPartsInOneOrderWhateverComesFirst) {
  const std::vector<double> squares = {1e16, 1, -1e16, 1};
  double expected = 0;
  for (const double each : squares) expected += each;
  Signal signal;
  Norms forwards({4}, signal);
  Norms backwards({4}, signal);
  for (std::uint32_t i = 0; i < 4; ++i) {
    forwards.put(0, {NormId(0), i}, {squares[i], 0});
    backwards.put(0, {NormId(0), 3 - i}, {squares[3 - i], 0});
  }
  EXPECT_EQ(forwards.total(0, NormId(0)).first, expected);
  EXPECT_EQ(backwards.total(0, NormId(0)), forwards.total(0, NormId(0)));
}

TEST(Norms, HoldTwoStepsAtATime) {
  Signal signal;
  Norms norms({1}, signal);
  for (std::uint64_t step = 0; step < 5; ++step) {
    norms.put(step, {NormId(0), 0}, {static_cast<double>(step), 1});
    EXPECT_EQ(norms.total(step, NormId(0)).first, static_cast<double>(step));
    if (step == 0) continue;
    EXPECT_EQ(norms.total(step - 1, NormId(0)).first, static_cast<double>(step - 1));
  }
  EXPECT_THROW((void)norms.total(2, NormId(0)), InternalError) << "step 4 has taken its place";
}

TEST(Norms, RefuseAPartThatCameTwiceAndATotalThatIsIncomplete) {
  Signal signal;
  Norms norms({2}, signal);
  norms.put(0, {NormId(0), 1}, {1, 0});
  EXPECT_THROW(norms.put(0, {NormId(0), 1}, {1, 0}), InternalError);
  EXPECT_THROW((void)norms.total(0, NormId(0)), InternalError);
}

// Two slices of a clipped variable and a clipped variable that no slice carries.
TEST(NormPlan, NumbersTheSlicesPiecesBeforeWholeVariables) {
  auto graph = std::make_shared<ir::Graph>();
  program::Program program;
  for (const char* name : {"v", "w"}) {
    ir::Variable variable;
    variable.name = name;
    variable.gradient = ir::ValueId(0);
    variable.update = ir::default_rule(ir::Rule::kLamb);
    graph->variables.push_back(variable);
    program::VariablePlan plan;
    plan.clip = program::ClipId(0);
    program.variables.push_back(plan);
  }
  graph->clips = {{1.0, {ir::VariableId(0), ir::VariableId(1)}}};
  program.graph = graph;
  program.ranks.resize(2);
  program.ranks[0].replica = 0;
  program.ranks[1].replica = 1;
  program.shards = {{ir::VariableId(1), "w", 0, 0, 8, 8}};
  for (std::int64_t i = 0; i < 2; ++i) {
    program::Slice slice;
    slice.pieces = {{program::ShardId(0), 4 * i, 4 * i + 4}};
    slice.members = {program::Rank(0), program::Rank(1)};
    program.variables[1].slices.emplace_back(i);
    program.slices.push_back(slice);
  }
  const protocol::Job job(program);
  EXPECT_EQ(job.norms.parts, (std::vector<std::uint32_t>{3, 2})) << "the clip's, and LAMB's of w";
  const NormPlan plan(program, job);
  EXPECT_EQ(plan.clipped[1][0]->part, 1U);
  EXPECT_EQ(plan.lamb[1][0]->norm, NormId(1));
  EXPECT_EQ(plan.whole[0]->part, 2U);
  EXPECT_FALSE(plan.whole[1]) << "its slices have the parts";
}

TEST(ClipFactor, LeavesSmallNormsAlone) {
  EXPECT_EQ(clip_factor(5, 4), 1);
  EXPECT_NEAR(clip_factor(5, 100), 0.5, 1e-6);
}

}  // namespace
}  // namespace autodist::exec
