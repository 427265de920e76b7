#include "autodist/app/report_page.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/graph_file.h"
#include "autodist/program/trace.h"
#include "tests/outcome_of.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLog = "{\"step\":0,\"loss\":1.5}\n{\"step\":1,\"loss\":1.0}\n";
constexpr const char* kCluster = R"(
nodes:
  - address: 10.0.0.1
    cpus: [0]
    chief: true
  - address: 10.0.0.2
    cpus: [0]
    ssh_config: conf
ssh:
  conf:
    username: planted-user
    key_file: /planted/id_rsa
    shared_envs:
      PLANTED_TOKEN: planted-value
)";

std::string graph_bytes() {
  ir::GraphBuilder step("linear", 10);
  const auto x = step.input("x", ir::contiguous({ir::batch(), 8}));
  const auto w = step.variable("w", ir::contiguous({8, 4}));
  const auto y = step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), 4}));
  step.output(step.op("aten::mean", {y}, ir::contiguous({})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, y}, ir::contiguous({8, 4})));
  return ir::serialize(step.finish());
}

std::string trace_bytes() {
  program::Trace trace;
  trace.rows = {{program::Activity::kCompute, program::Rank(0), program::StreamKind::kCompute, 0,
                 "aten::mm", Bytes(0), Seconds(0), Seconds(1)}};
  return program::to_chrome_json(trace);
}

double step_of(const report::PageInputs& inputs) {
  return inputs.prediction.at("step_seconds").get<double>();
}

// Files with names that tell nothing.
class ReportPage : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) {
    write_file_atomically(scratch_ / name, bytes);
    return scratch_ / name;
  }
  static report::PageInputs inputs_of(const ReportRequest& request) {
    std::vector<std::string> warnings;
    return page_inputs(request, warnings);
  }

 private:
  const testing_jobs::Scratch scratch_;
};

TEST_F(ReportPage, TellsFilesByTheirContents) {
  ReportRequest request;
  request.inputs = {file("a", trace_bytes()), file("b", kLog), file("c", graph_bytes()),
                    file("d", kCluster)};
  request.predicted = {file("e", trace_bytes())};
  request.builder = "PS";
  const report::PageInputs inputs = inputs_of(request);
  ASSERT_EQ(inputs.traces.size(), 2U);  // none is simulated beside the one that was given
  EXPECT_FALSE(inputs.traces[0].predicted);
  EXPECT_TRUE(inputs.traces[1].predicted);
  EXPECT_EQ(inputs.run->steps.size(), 2U);
  EXPECT_EQ(inputs.graph->name, "linear");
  EXPECT_EQ(inputs.program->ranks.size(), 2U);
  EXPECT_EQ(inputs.title, "linear on 2 ranks");
  EXPECT_EQ(inputs.chosen_by, "builder PS");
  EXPECT_EQ(inputs.sources, (std::vector<std::string>{"a", "b", "c", "e"}));
}

TEST_F(ReportPage, ComparesTheBuilders) {
  ReportRequest request;
  request.inputs = {file("graph", graph_bytes())};
  request.cluster = "local:4";
  request.builder = "PS";
  const report::PageInputs inputs = inputs_of(request);
  ASSERT_GT(inputs.alternatives.size(), 8U);
  EXPECT_EQ(inputs.alternatives[0].name, "PS");
  EXPECT_TRUE(inputs.alternatives[0].chosen);
  EXPECT_FALSE(inputs.alternatives[1].chosen);
  EXPECT_EQ(inputs.alternatives[0].busiest, report::busiest_rank(*inputs.program));
  // The graph has no times: no prediction, and the page says why.
  EXPECT_TRUE(inputs.prediction.is_null());
  EXPECT_TRUE(inputs.traces.empty());
  ASSERT_EQ(inputs.remarks.size(), 1U);
  EXPECT_NE(inputs.remarks[0].find("No prediction"), std::string::npos);
}

TEST_F(ReportPage, PredictsAPlan) {
  ReportRequest request;
  request.inputs = {"resnet-small"};
  request.cluster = "local:2";
  request.builder = "PS";
  const report::PageInputs inputs = inputs_of(request);
  ASSERT_FALSE(inputs.prediction.is_null());
  EXPECT_EQ(inputs.prediction.at("memory").size(), 2U);
  EXPECT_GT(step_of(inputs), 0);
  ASSERT_EQ(inputs.traces.size(), 1U);
  EXPECT_TRUE(inputs.traces[0].predicted);
  ASSERT_FALSE(inputs.alternatives.empty());
  EXPECT_EQ(inputs.alternatives[0].name, "PS");
  EXPECT_EQ(inputs.alternatives[0].step->value, step_of(inputs));
  EXPECT_EQ(inputs.next_best.size(), inputs.graph->variables.size());
}

TEST_F(ReportPage, TakesAClusterWithItsCalibrationFromTheInputsToo) {
  ReportRequest request;
  request.inputs = {"digits", file("two.yml", "nodes: [{address: localhost, slots: 2}]")};
  request.builder = "PS";
  const double before = step_of(inputs_of(request));
  file("two.calibration.yml", "message_seconds: 0.5");
  const report::PageInputs calibrated = inputs_of(request);
  EXPECT_GT(step_of(calibrated), before);
  EXPECT_EQ(calibrated.sources, (std::vector<std::string>{"digits", "two.calibration.yml"}));
  request.inputs = {"digits", "local:2"};
  EXPECT_EQ(inputs_of(request).program->ranks.size(), 2U);
}

TEST_F(ReportPage, SaysThatTracesAreOfOtherModels) {
  program::Trace trace;
  trace.rows = {{program::Activity::kCompute, program::Rank(0), program::StreamKind::kCompute, 0,
                 "aten::mm", Bytes(0), Seconds(0), Seconds(1)}};
  ReportRequest request;
  for (const char* graph : {"digits", "digits", "vgg16"}) {
    trace.graph = graph;
    const std::string name = "trace" + std::to_string(request.inputs.size());
    request.inputs.push_back(file(name, program::to_chrome_json(trace)));
  }
  std::vector<std::string> warnings;
  page_inputs(request, warnings);
  EXPECT_EQ(warnings, std::vector<std::string>{"report: of other models: trace0 is of digits, "
                                               "trace2 is of vgg16"});
}

// What a cluster file says of ssh, and the folders that files lie in, are nobody's business.
TEST_F(ReportPage, HoldsNoSecrets) {
  ReportRequest request;
  const std::string log = file("log", "{\"step\":0,\"loss\":1,\"key\":\"planted-key\"}\n");
  request.inputs = {file("graph", graph_bytes()), file("cluster.yml", kCluster), log,
                    file("trace", trace_bytes())};
  request.builder = "PS";
  const std::string html = report::to_html(inputs_of(request));
  EXPECT_EQ(html.find("planted"), std::string::npos);
  EXPECT_EQ(html.find("PLANTED"), std::string::npos);
  EXPECT_EQ(html.find(fs::path(log).parent_path().string()), std::string::npos);
}

TEST_F(ReportPage, RefusesTwoOfAKindAndNothing) {
  ReportRequest request;
  EXPECT_THROW(inputs_of(request), Error);
  request.inputs = {file("a", kLog), file("b", kLog)};
  EXPECT_THROW(inputs_of(request), Error);
  request.inputs = {file("c", graph_bytes()), file("d", graph_bytes())};
  EXPECT_THROW(inputs_of(request), Error);
  request.inputs = {file("e", std::string("\x01\x02\x00\xff", 4))};
  EXPECT_THROW(inputs_of(request), Error);
}

}  // namespace
}  // namespace autodist::app
