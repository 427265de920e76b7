#include "autodist/studies/published_chart.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"

namespace autodist::studies {
namespace {

TEST(Chart, IsReadWithItsGaps) {
  const Chart chart = parse_chart(
      "# a line\nmodel\tgpus\tPS\tHorovod\nVGG16\t1\t61.9\t74.8\n"
      "VGG16\t8\t\t32.3\n",
      "test");
  EXPECT_EQ(chart.size(), 3U);
  EXPECT_EQ(chart.at({"VGG16", 8, "Horovod"}), 32.3);
  EXPECT_EQ(chart.count({"VGG16", 8, "PS"}), 0U);
}

TEST(Chart, RefusesWhatIsNone) {
  for (const char* text :
       {"gpus\tmodel\tPS\n", "model\tgpus\tPS\nVGG16\t8\tfast\n",
        "model\tgpus\tPS\nVGG16\t8\t1\t2\n", "model\tgpus\tPS\nVGG16\teight\t1\n",
        "model\tgpus\tPS\nVGG16\t8\t-1\n"}) {
    EXPECT_THROW(parse_chart(text, "test"), Error) << text;
  }
}

TEST(Chart, SaysWhichRateIsMissing) {
  const Chart chart = parse_chart("model\tgpus\tPS\nVGG16\t1\t61.9\n", "test");
  EXPECT_THROW((void)study_chart(chart), Error);
}

TEST(Chart, RatesFollowTheLinks) {
  ChartCosts costs;
  const double slow = predicted_rate("ResNet101", "PS", 8, 57, costs);
  EXPECT_LE(slow, 57 * 1.001) << "nobody is faster than alone";
  costs.tensor_bytes_per_s *= 4;
  const double faster = predicted_rate("ResNet101", "PS", 8, 57, costs);
  EXPECT_GT(faster, slow);
  costs.shard = Seconds{};
  EXPECT_GT(predicted_rate("ResNet101", "PS", 8, 57, costs), faster);
  const double library = predicted_rate("ResNet101", "AllReduce", 8, 57, costs);
  costs.nccl_bytes_per_s /= 8;
  EXPECT_LT(predicted_rate("ResNet101", "AllReduce", 8, 57, costs), library);
  EXPECT_THROW((void)predicted_rate("LeNet", "PS", 8, 57, costs), Error);
}

// With NCCL's bandwidth as docs/benchmarks/published-chart.md has it, on what it was fitted on:
// 51.8 and 26.2.
TEST(Chart, AllReducesAreNearThePublishedRates) {
  ChartCosts costs;
  costs.nccl_bytes_per_s = 0.95e9;
  EXPECT_NEAR(predicted_rate("ResNet101", "AllReduce", 8, 61.85, costs) / 51.8, 1, 0.1);
  EXPECT_NEAR(predicted_rate("VGG16", "AllReduce", 8, 74.84, costs) / 26.2, 1, 0.1);
}

}  // namespace
}  // namespace autodist::studies
