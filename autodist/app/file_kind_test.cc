#include "autodist/app/file_kind.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/strategy/strategy.h"

namespace autodist::app {
namespace {

std::string file(const std::string& path) {
  return read_file(std::string(AUTODIST_SOURCE_DIR) + "/" + path);
}

strategy::Strategy small() {
  strategy::Strategy strategy;
  strategy.id = "20200205T174341M635634";
  strategy.nodes = {{"W:0", strategy::PsSynchronizer{"a:CPU:0"}, "", {}, {}}};
  return strategy;
}

TEST(FileKind, IsToldByTheContents) {
  const auto kind = [](const std::string& bytes) { return kind_of(bytes, "some/file"); };
  EXPECT_EQ(kind(file("data/graphs/digits.adg")), FileKind::kGraph);
  EXPECT_EQ(kind(file("autodist/ir/testdata/small.graph_item")), FileKind::kGraphItem);
  EXPECT_EQ(kind(strategy::serialize(small())), FileKind::kStrategy);
  EXPECT_EQ(kind(strategy::to_text(small())), FileKind::kStrategy);
  EXPECT_EQ(kind("nodes:\n  - address: a\n"), FileKind::kCluster);
  EXPECT_EQ(kind("a slots=2\nb\n"), FileKind::kCluster);
  EXPECT_EQ(kind("[\"a\", \"b\"]"), FileKind::kCluster);
  EXPECT_EQ(kind("runtime:\n- 0.5\naverage: 0.5\n"), FileKind::kRuntimes);
  EXPECT_EQ(kind("{\"average\": 0.5, \"runtime\": [0.5]}"), FileKind::kRuntimes);
  EXPECT_EQ(kind("{\"traceEvents\": []}"), FileKind::kTrace);
  EXPECT_EQ(kind("{\"step\":0,\"loss\":1.5}\n{\"step\":1}"), FileKind::kLog);
  EXPECT_EQ(kind("step,loss\n0,1.5\n"), FileKind::kLog);
  EXPECT_EQ(kind("{\"step_seconds\": 1, \"bound_seconds\": 0.5}"), FileKind::kPrediction);
  EXPECT_EQ(kind("[{\"nodes\": \"1\", \"prediction\": {\"step_seconds\": 1}}]"), FileKind::kSweep);
  EXPECT_EQ(kind("{\"nodes\": [{\"address\": \"a\"}]}"), FileKind::kCluster);
}

TEST(FileKind, OfADamagedOneIsToldByItsName) {
  const std::string broken = "\x0a\xff\xff\xff\x0f garbage";
  EXPECT_EQ(kind_of(broken, "x.adg"), FileKind::kGraph);
  EXPECT_EQ(kind_of(broken, "x.strategy"), FileKind::kStrategy);
  EXPECT_EQ(kind_of(broken, "vgg16/graph_item"), FileKind::kGraphItem);
  EXPECT_EQ(kind_of(broken, "x.yml"), FileKind::kCluster);
  EXPECT_THROW(kind_of(broken, "x"), Error);
  EXPECT_THROW(kind_of("", "x.pbtxt"), Error);  // nothing is of no kind
}

}  // namespace
}  // namespace autodist::app
