#include "autodist/app/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "autodist/base/error.h"
#include "autodist/program/trace.h"

namespace autodist::app {
namespace {

program::TraceRow row(program::Activity activity, std::uint32_t rank, std::uint64_t step,
                      double start, double end, const char* name) {
  return {activity,       program::Rank(rank), program::StreamKind::kCompute, step, name, Bytes(8),
          Seconds(start), Seconds(end)};
}

// Steps of `length` seconds: an op, then a gate of a fifth of it.
program::Trace steps(double length, int count, double from, int first = 0) {
  program::Trace trace;
  for (int k = 0; k < count; ++k) {
    const double start = from + k * length;
    const auto step = static_cast<std::uint64_t>(first + k);
    trace.rows.push_back(row(program::Activity::kGate, 0, step, start, start + length / 5, "w"));
    trace.rows.push_back(
        row(program::Activity::kCompute, 0, step, start + length / 5, start + length, "aten::mm"));
  }
  return trace;
}

TEST(Comparison, ComparesStepsPhasesAndVariables) {
  const Comparison comparison = compare(steps(0.9, 4, 0), steps(1.0, 5, 100));
  EXPECT_NEAR(comparison.step.predicted.value, 0.9, 1e-9);
  EXPECT_NEAR(comparison.step.measured.value, 1.0, 1e-9);
  EXPECT_NEAR(comparison.step.error(), -0.1, 1e-9);
  ASSERT_EQ(comparison.phases.size(), 2U);
  EXPECT_EQ(comparison.phases[0].name, "compute");
  EXPECT_NEAR(comparison.phases[0].measured.value, 0.8, 1e-9);
  ASSERT_EQ(comparison.variables.size(), 1U);
  EXPECT_EQ(comparison.variables[0].name, "w");
  EXPECT_NEAR(comparison.variables[0].predicted.value, 0.18, 1e-9);
}

// A long training's trace has its last steps, a prediction's its first ones.
TEST(Comparison, ComparesTracesOfOtherSteps) {
  const Comparison comparison = compare(steps(0.9, 4, 0), steps(1.0, 5, 100, 995));
  EXPECT_NEAR(comparison.step.predicted.value, 0.9, 1e-9);
  EXPECT_NEAR(comparison.step.measured.value, 1.0, 1e-9);
  EXPECT_NEAR(comparison.variables.at(0).measured.value, 0.2, 1e-9);
}

TEST(Comparison, SaysThatTracesAreOfOtherModels) {
  program::Trace predicted = steps(0.9, 4, 0);
  program::Trace measured = steps(1.0, 4, 0);
  const auto said = [&] { return comparison_table(compare(predicted, measured), 0, 0); };
  const std::string line =
      "of other models: the prediction is of digits, the measurement is of vgg16\n";
  predicted.graph = "digits";
  EXPECT_EQ(said().find("of other models"), std::string::npos) << "one has no name";
  measured.graph = "vgg16";
  EXPECT_NE(said().find(line), std::string::npos) << said();
  measured.graph = "digits";
  EXPECT_EQ(said().find("of other models"), std::string::npos);
}

TEST(Comparison, PutsBothIntoOneFile) {
  const auto both = nlohmann::json::parse(side_by_side(steps(0.9, 2, 0), steps(1.0, 2, 100)));
  double last = 0;
  int rows = 0;
  for (const auto& event : both["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++rows;
    EXPECT_LT(event["pid"], 2);
    last = std::max(last, event["ts"].get<double>());
  }
  EXPECT_EQ(rows, 8);
  EXPECT_LT(last, 2e6) << "both begin at 0";
}

// A slice that waits is an asynchronous event of its trace.
TEST(Comparison, CountsTimeInQueues) {
  program::Trace trace = steps(1, 2, 0);
  trace.rows.push_back(row(program::Activity::kQueue, 0, 1, 1.5, 1.75, "w"));
  const Comparison comparison = compare(trace, trace);
  EXPECT_TRUE(std::any_of(comparison.phases.begin(), comparison.phases.end(),
                          [](const Compared& each) { return each.name == "queue"; }));
  const auto both = nlohmann::json::parse(side_by_side(trace, trace));
  std::set<std::string> waits;
  for (const auto& event : both["traceEvents"]) {
    if (event["ph"] == "b") waits.insert(event["id"].get<std::string>());
  }
  EXPECT_EQ(waits.size(), 2U) << "one of each trace, told apart";
}

TEST(Comparison, RefusesTracesOfOtherRanks) {
  program::Trace other;
  other.rows.push_back(row(program::Activity::kCompute, 7, 0, 0, 1, "op"));
  EXPECT_THROW(compare(steps(1, 2, 0), other), Error);
}

}  // namespace
}  // namespace autodist::app
