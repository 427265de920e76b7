#include "autodist/app/studies/published_chart.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {
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
        "model\tgpus\tPS\nVGG16\t8\t1\t2\n", "model\tgpus\tPS\nVGG16\t8\t-1\n"}) {
    EXPECT_THROW(parse_chart(text, "test"), Error) << text;
  }
}

TEST(Chart, RatesFollowTheLinks) {
  ChartCosts costs;
  const double slow = predicted_rate("ResNet101", "PS", 8, 57, costs);
  EXPECT_LE(slow, 57 * 1.001) << "nobody is faster than alone";
  costs.rpc_bytes_per_s *= 4;
  EXPECT_GT(predicted_rate("ResNet101", "PS", 8, 57, costs), slow);
  const double library = predicted_rate("ResNet101", "AllReduce", 8, 57, costs);
  costs.nccl_bytes_per_s /= 8;
  EXPECT_LT(predicted_rate("ResNet101", "AllReduce", 8, 57, costs), library);
  EXPECT_THROW((void)predicted_rate("LeNet", "PS", 8, 57, costs), Error);
}

// The design's goals, on the chart itself where it lies beside the project.
TEST(Chart, OrdersTheSystemsAsPublished) {
  const char* set = std::getenv("AUTODIST_DATA");
  const std::string path =
      std::string(set != nullptr ? set : AUTODIST_SOURCE_DIR "/../shared/data") +
      "/autodist/figure1.tsv";
  std::string text;
  try {
    text = read_file(path);
  } catch (const Error&) {
    GTEST_SKIP() << "no " << path << ": set AUTODIST_DATA";
  }
  const ChartStudy study = study_chart(parse_chart(text, path));
  int winners = 0;
  double tau = 0;
  int cells = 0;
  for (const ChartCell& cell : study.cells) {
    if (is_fitted(cell.model)) continue;
    ++cells;
    winners += cell.winner_in_two ? 1 : 0;
    tau += cell.tau;
  }
  EXPECT_EQ(cells, 9);
  EXPECT_GE(winners, 7);
  EXPECT_GE(tau / cells, 0.5);
}

}  // namespace
}  // namespace autodist::app
