#include "autodist/report/html/sweep_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autodist/base/error.h"

namespace autodist::report {
namespace {

constexpr char kPrinted[] = R"([
  {"nodes": "1", "efficiency": 1.0,
   "prediction": {"step_seconds": 0.5, "batch_samples": 32, "samples_per_second": 64.0, "peak_bytes": 1024}},
  {"nodes": "2", "efficiency": 0.9,
   "prediction": {"step_seconds": 0.6, "batch_samples": 64, "samples_per_second": 115.2, "peak_bytes": 1024,
                  "epoch_seconds": 3.0, "cost_of_epoch": 1.5}}])";

TEST(SweepSection, SaysOfEveryValueWhatWasPredicted) {
  const nlohmann::ordered_json json = parse_sweep(kPrinted, "sweep.json").section;
  EXPECT_EQ(json.at("varies"), "nodes");
  ASSERT_EQ(json.at("predictions").size(), 2U);
  const auto& last = json.at("predictions").at(1);
  EXPECT_EQ(last.at("value"), "2");
  EXPECT_EQ(last.at("samples"), 64);
  EXPECT_EQ(last.at("efficiency"), 0.9);
  EXPECT_EQ(last.at("cost"), 1.5);
  EXPECT_FALSE(json.at("predictions").at(0).contains("cost"));
}

TEST(SweepSection, WhatIsNoneIsRefused) {
  for (const char* text : {"[]", "[{}]", "[{\"nodes\": \"1\"}]", "[1"}) {
    try {
      parse_sweep(text, "sweep.json");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("sweep.json: not what `autodist simulate"));
    }
  }
}

}  // namespace
}  // namespace autodist::report
