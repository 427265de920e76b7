#include "autodist/ir/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace autodist::ir {
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

}  // namespace
}  // namespace autodist::ir
