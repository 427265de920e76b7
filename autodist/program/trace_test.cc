#include "autodist/program/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autodist/base/error.h"

namespace autodist::program {
namespace {

TEST(Trace, BecomesTraceEventsInMicrosecondsWithNamedTracks) {
  Trace trace;
  trace.rows.push_back({Activity::kCompute, Rank(1), StreamKind::kCompute, 3, "aten::mm", Bytes{0},
                        Seconds{0.5}, Seconds{0.75}});
  trace.rows.push_back({Activity::kMerge, Rank(1), StreamKind::kCompute, 3, "fc.weight", Bytes{64},
                        Seconds{0.6}, Seconds{0.7}});
  const auto json = nlohmann::json::parse(to_chrome_json(trace));
  std::vector<nlohmann::json> spans;
  int names = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
    if (event.at("ph") == "M") ++names;
  }
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(names, 4) << "process and thread for each of two tracks";
  EXPECT_EQ(spans[0].at("pid"), 1);
  EXPECT_DOUBLE_EQ(spans[0].at("ts").get<double>(), 5e5);
  EXPECT_DOUBLE_EQ(spans[0].at("dur").get<double>(), 2.5e5);
  EXPECT_NE(spans[0].at("tid"), spans[1].at("tid")) << "what overlaps stands on different tracks";
  EXPECT_EQ(spans[1].at("args").at("bytes"), 64);
}

TraceRow row(Activity activity, double start, double end, const std::string& name = "w") {
  return {activity, Rank(0),  StreamKind::kTransfer, 2,
          name,     Bytes{8}, Seconds{start},        Seconds{end}};
}

std::vector<nlohmann::json> events(const Trace& trace, const std::string& phase) {
  std::vector<nlohmann::json> found;
  const auto json = nlohmann::json::parse(to_chrome_json(trace));
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(Trace, OverlappingRowsOfOneStreamNeverShareATrack) {
  const Trace trace{{row(Activity::kWire, 0, 3), row(Activity::kWire, 1, 2),
                     row(Activity::kWire, 2.5, 4), row(Activity::kWire, 3, 5)}};
  const auto spans = events(trace, "X");
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_NE(spans[0].at("tid"), spans[1].at("tid"));
  EXPECT_EQ(spans[1].at("tid"), spans[2].at("tid")) << "free again";
  EXPECT_EQ(spans[0].at("tid"), spans[3].at("tid"));
}

TEST(Trace, AnArrowLeadsFromEveryContributionToItsInstallation) {
  const Trace trace{{row(Activity::kContribute, 0, 1), row(Activity::kContribute, 1, 2, "b"),
                     row(Activity::kInstall, 3, 4), row(Activity::kInstall, 4, 5, "other")}};
  const auto begins = events(trace, "s");
  const auto ends = events(trace, "f");
  ASSERT_EQ(begins.size(), 2u);
  ASSERT_EQ(ends.size(), 1u) << "what was not contributed has no arrow";
  EXPECT_EQ(begins[0].at("id"), ends[0].at("id"));
  EXPECT_DOUBLE_EQ(ends[0].at("ts").get<double>(), 3e6);
}

TEST(Trace, IsReadAsItWasWritten) {
  TraceRow queued = row(Activity::kQueue, 0.125, 0.5);
  queued.hop = SliceHop{SliceId(7), Rank(3), true};
  const Trace trace{{queued, row(Activity::kMerge, 0.25, 0.75)}};
  EXPECT_EQ(read_chrome_json(to_chrome_json(trace), "test").rows, trace.rows);
}

TEST(Trace, OtherFilesAreRefused) {
  EXPECT_THROW(read_chrome_json("{", "test"), Error);
  EXPECT_THROW(read_chrome_json(R"({"traceEvents": [{"ph": "X", "cat": "wire"}]})", "test"), Error);
  EXPECT_TRUE(read_chrome_json(R"({"traceEvents": []})", "test").rows.empty());
}

TEST(Trace, SaysWhichGraphItIsOf) {
  Trace trace{{row(Activity::kWire, 0, 1)}, TraceOrigin::kSimulation, "a \"graph\""};
  EXPECT_EQ(graph_of(to_chrome_json(trace)), trace.graph);
  EXPECT_EQ(origin_of(to_chrome_json(trace)), trace.origin);
  EXPECT_EQ(read_chrome_json(to_chrome_json(trace), "test").graph, trace.graph);
  EXPECT_EQ(merged({trace, trace}).graph, trace.graph);
  trace.graph.clear();
  EXPECT_EQ(graph_of(to_chrome_json(trace)), "");
  for (const char* text : {"", "{", R"({"otherData":{"graph":1},"traceEvents":[]})",
                           R"({"otherData":"x","traceEvents":[]})", R"([1,"traceEvents"])"}) {
    EXPECT_EQ(graph_of(text), "") << text;
  }
}

TEST(Trace, SeveralBecomeOneInTheOrderOfTime) {
  const Trace one{{row(Activity::kWire, 1, 2), row(Activity::kWire, 5, 6)}};
  const Trace other{{row(Activity::kMerge, 3, 4)}};
  const Trace all = merged({one, other});
  ASSERT_EQ(all.rows.size(), 3u);
  EXPECT_EQ(all.rows[1].activity, Activity::kMerge);
}

}  // namespace
}  // namespace autodist::program
