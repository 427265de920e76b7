#include "autodist/report/html/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/program/trace.h"

namespace autodist::report {
namespace {

constexpr const char* kPlanted = "w</script><script>planted()</script><!--&\"";

ir::Graph graph() {
  ir::GraphBuilder step(kPlanted, 10);
  const auto x = step.input("x", ir::contiguous({ir::batch(), 8}));
  const auto w = step.variable(kPlanted, ir::contiguous({8, 4}));
  step.variable("idle", ir::contiguous({3}));
  const auto y = step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), 4}));
  step.output(step.op("aten::mean", {y}, ir::contiguous({})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, y}, ir::contiguous({8, 4})));
  return step.finish();
}

std::string trace(std::uint64_t steps, std::size_t ops) {
  program::Trace trace;
  double at = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (std::size_t op = 0; op < ops; ++op, at += 1e-4) {
      trace.rows.push_back({program::Activity::kCompute, program::Rank(0),
                            program::StreamKind::kCompute, step, kPlanted, Bytes(0), Seconds(at),
                            Seconds(at + 1e-4)});
    }
  }
  return program::to_chrome_json(trace);
}

PageInputs everything() {
  PageInputs inputs;
  inputs.title = kPlanted;
  inputs.chosen_by = "builder PS";
  inputs.graph = std::make_shared<const ir::Graph>(graph());
  strategy::Strategy strategy;
  strategy.id = "20200205T174341M635634";
  strategy::NodeConfig node;
  node.name = strategy::node_name(kPlanted);
  node.synchronizer = strategy::PsSynchronizer{"10.0.0.1:CPU:0"};
  node.needed = Seconds(0.002);
  strategy.nodes = {node};
  inputs.strategy = strategy;
  inputs.traces = {{kPlanted, trace(4, 3), false}};
  inputs.run = parse_run_log("step,loss\n0,1\n1,0.5\n", "log");
  Alternative other;
  other.name = "AllReduce";
  other.description = kPlanted;
  other.busiest = Bytes(7);
  other.step = Seconds(0.25);
  other.peak = Bytes(9);
  inputs.alternatives = {other};
  inputs.next_best = {{kPlanted, {"all-reduce", Seconds(0.125), kPlanted, Seconds(0.5)}}};
  inputs.remarks = {kPlanted};
  inputs.sources = {kPlanted};
  return inputs;
}

std::string data_of(const std::string& html) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const std::size_t from = html.find(begin) + begin.size();
  return html.substr(from, html.find("</script>", from) - from);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Page, NamesCannotEndTheScriptThatHoldsThem) {
  const std::string html = to_html(everything());
  EXPECT_EQ(count(html, "planted()"), count(data_of(html), "planted()") + 1);  // and the title
  EXPECT_EQ(count(html, "<script>planted"), 0U);
  EXPECT_EQ(count(html, "</script>"), 3U);
  EXPECT_EQ(count(data_of(html), "<"), 0U);
  const auto json = nlohmann::json::parse(data_of(html));
  EXPECT_EQ(json.at("title"), kPlanted);
  EXPECT_EQ(json.at("plan").at("variables").at(0).at("name"), kPlanted);
  EXPECT_EQ(json.at("timelines").at(0).at("names").at(0), kPlanted);
}

TEST(Page, AsksNothingOfAnyNetwork) {
  const std::string html = to_html(everything());
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  for (const char* way : {"src=\"http", "href=\"http", "url(http", "@import", "fetch(",
                          "XMLHttpRequest", "WebSocket", "sendBeacon"}) {
    EXPECT_EQ(count(html, way), 0U) << way;
  }
}

TEST(Page, SaysOfEachVariableWhatWasChosenAndWhy) {
  const auto json = nlohmann::json::parse(data_of(to_html(everything())));
  const auto& variables = json.at("plan").at("variables");
  ASSERT_EQ(variables.size(), 2U);
  EXPECT_EQ(variables[0].at("bytes"), 128);
  EXPECT_EQ(variables[0].at("choice"), "PS at 10.0.0.1:CPU:0");
  EXPECT_NE(variables[0].at("why").get<std::string>().find("2.00 ms"), std::string::npos);
  EXPECT_EQ(variables[1].at("choice"), "not synchronised");
  EXPECT_EQ(variables[0].at("next_best").at("cost_seconds"), 0.125);
  EXPECT_FALSE(variables[1].contains("next_best"));
  const auto& alternative = json.at("plan").at("alternatives").at(0);
  EXPECT_EQ(alternative.at("busiest_bytes"), 7);
  EXPECT_EQ(alternative.at("step_seconds"), 0.25);
  EXPECT_EQ(alternative.at("peak_bytes"), 9);
}

TEST(Page, ShowsAPlacement) {
  PageInputs inputs;
  inputs.placement = PagePlacement{};
  inputs.placement->devices = {
      {kPlanted, 3, Seconds(0.5), Seconds(0.25), Bytes(7), Bytes(8), Bytes(9), Bytes(10)}};
  inputs.traces = {{"graph", trace(1, 3), true, {kPlanted}}};
  const auto json = nlohmann::json::parse(data_of(to_html(inputs)));
  const auto& device = json.at("placement").at("devices").at(0);
  EXPECT_EQ(device.at("name"), kPlanted);
  EXPECT_EQ(device.at("capacity_bytes"), 8);
  const auto& timeline = json.at("timelines").at(0);
  EXPECT_EQ(timeline.at("places").at(0), kPlanted);
  // No job ran: nothing is said of where a rank's time went.
  EXPECT_FALSE(timeline.contains("verdict"));
  EXPECT_TRUE(timeline.at("ranks").empty());
}

TEST(Page, IsMadeOfAStrategyAlone) {
  PageInputs inputs = everything();
  inputs = {};
  inputs.strategy = everything().strategy;
  const auto json = nlohmann::json::parse(data_of(to_html(inputs)));
  EXPECT_EQ(json.at("plan").at("variables").at(0).at("choice"), "PS at 10.0.0.1:CPU:0");
  EXPECT_TRUE(json.at("run").is_null());
  EXPECT_TRUE(json.at("timelines").empty());
}

TEST(Page, StaysBelowTwoMegabytesForALongRun) {
  PageInputs inputs = everything();
  RunLog log({"loss", "samples_per_second", "step_seconds", "waiting_seconds"});
  for (std::int64_t step = 0; step < 10'000; ++step) {
    const auto x = static_cast<double>(step);
    log.add(step, {1.0 / (x + 3), 1234.56789 + x / 7, 0.0123456789 * x, 1e-7 * x / 3});
  }
  inputs.run = log;
  inputs.traces = {{"measured", trace(10'000, 12), false}, {"predicted", trace(3, 40'000), true}};
  const std::string html = to_html(inputs);
  EXPECT_LT(html.size(), 2'000'000U);
  const auto json = nlohmann::json::parse(data_of(html));
  EXPECT_EQ(json.at("run").at("steps_in_log"), 10'000);
  EXPECT_LT(json.at("run").at("steps").size(), 2'100U);
  EXPECT_NEAR(json.at("run").at("median_step_seconds"), 0.0123456789 * 4999, 1e-3) << "of all";
  EXPECT_NEAR(json.at("run").at("median_samples_per_second"), 1234.56789 + 5000 / 7.0, 1e-2);
  EXPECT_EQ(json.at("timelines").at(0).at("rows_in_trace"), 120'000);
  EXPECT_LE(json.at("timelines").at(0).at("rows").at("track").size(), 12'000U);
}

TEST(Page, SaysHowOftenRanksWereLost) {
  PageInputs inputs;
  inputs.run = RunLog({"loss"});
  inputs.run->add(7, {0.5});
  inputs.run->losses = {{5, 2, Seconds{1.75}}};
  EXPECT_NE(to_html(inputs).find(R"("losses":[{"step":5,"steps_again":2,"away_seconds":1.75}])"),
            std::string::npos);
}

TEST(Page, ReadsWhatSimulatePrints) {
  const std::string text = R"({"step_seconds": 0.5, "bound_seconds": 0.25,
    "bound_reason": "compute", "ranks": [{"device": "a:CPU:0", "memory": {"device_bytes": 10,
    "parameter_bytes": 4, "gradient_bytes": 3, "activation_bytes": 2, "optimizer_bytes": 1,
    "communication_bytes": 9, "capacity_bytes": 8, "missing_bytes": 2}},
    {"device": "b:GPU:0", "memory": {"device_bytes": 17, "parameter_bytes": 4,
    "gradient_bytes": 3, "activation_bytes": 2, "optimizer_bytes": 1, "overhead_bytes": 7,
    "communication_bytes": 9, "capacity_bytes": 20, "missing_bytes": 0}}]})";
  const nlohmann::ordered_json prediction = parse_prediction(text, "p.json");
  EXPECT_EQ(prediction.at("bound_seconds"), 0.25);
  const auto& memory = prediction.at("memory");
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[0].at("parts").size(), 4U);  // what lies in the host's memory is left out
  EXPECT_EQ(memory[0].at("capacity_bytes"), 8);
  ASSERT_EQ(memory[1].at("parts").size(), 5U);
  EXPECT_EQ(memory[1].at("parts").back().at("name"), "overhead");
  EXPECT_THROW(parse_prediction("{}", "p.json"), Error);
  EXPECT_THROW(parse_prediction("[", "p.json"), Error);
}

}  // namespace
}  // namespace autodist::report
