#include "autodist/report/inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autodist/ir/graph_builder.h"

namespace autodist::report {
namespace {

ir::Graph linear() {
  ir::GraphBuilder step("linear", 10);
  ir::Effects effects;
  effects.cost = {Seconds{1e-3}, Seconds{1e-4}};
  effects.flops = {64, 0};
  const auto x = step.input("x", ir::contiguous({ir::batch(), 8}));
  const auto w = step.variable("fc.weight", ir::contiguous({8, 4}));
  step.variable("idle", ir::contiguous({3}));
  step.scope("fc");
  const auto y = step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), 4}), effects);
  step.output(step.op("aten::mean", {y}, ir::contiguous({})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, y}, ir::contiguous({8, 4}), effects));
  return step.finish();
}

TEST(Inspect, SummarisesWhatTheStepIs) {
  const std::string text = summary(linear());
  EXPECT_NE(text.find("2 forward, 1 backward"), std::string::npos) << text;
  EXPECT_NE(text.find("35 parameters in 2 tensors"), std::string::npos) << text;
  EXPECT_NE(text.find("1 unused"), std::string::npos) << text;
  EXPECT_NE(text.find("4.00 ms per step"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(summary_json(linear()));
  EXPECT_EQ(json.at("parameters"), 35);
  EXPECT_DOUBLE_EQ(json.at("flops_per_step").get<double>(), 1280);
}

TEST(Inspect, TheDearestOpsComeFirst) {
  const std::string text = costs_table(linear(), 1);
  EXPECT_NE(text.find("aten::mm"), std::string::npos) << text;
  EXPECT_NE(text.find("100.0%"), std::string::npos) << text;
  EXPECT_EQ(text.find("aten::mean"), std::string::npos) << text;
}

TEST(Inspect, TablesAndDotNameTheVariables) {
  EXPECT_NE(variables_table(linear()).find("unused by the step"), std::string::npos);
  EXPECT_NE(to_dot(linear()).find("\"fc.weight\" -> op0;"), std::string::npos) << to_dot(linear());
}

}  // namespace
}  // namespace autodist::report
