#include "autodist/studies/nccl_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::studies {
namespace {

TEST(Fitted, GoesThroughItsKnotsAndOn) {
  const FittedCollective fitted({{10, 1}, {20, 2}, {40, 3}});
  EXPECT_DOUBLE_EQ(fitted.seconds(10).value, 1);
  EXPECT_DOUBLE_EQ(fitted.seconds(15).value, 1.5);
  EXPECT_DOUBLE_EQ(fitted.seconds(40).value, 3);
  EXPECT_DOUBLE_EQ(fitted.seconds(60).value, 4);
  EXPECT_DOUBLE_EQ(fitted.seconds(0).value, 0);
}

TEST(Fitted, NeedsFewKnotsForALine) {
  std::vector<FittedCollective::Knot> line;
  for (int i = 1; i <= 60; ++i) line.push_back({i * 1e6, 1e-5 + i * 1e-4});
  EXPECT_EQ(FittedCollective::fit(line).knots().size(), 2U);
}

// The tables stay where they are: they may not be copied.
std::string data_folder() {
  const char* set = std::getenv("AUTODIST_DATA");
  return set != nullptr ? set : AUTODIST_SOURCE_DIR "/../shared/data";
}

TEST(Fitted, OnMeasuredNcclTables) {
  for (const int gpus : {2, 4, 8}) {
    const std::string path =
        data_folder() + "/nccl/a100_allreduce_" + std::to_string(gpus) + "gpu.csv";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path << "; set AUTODIST_DATA";
    const auto table = parse_nccl_table(read_file(path), path);
    const FitErrors errors = judge_fit(table);
    EXPECT_LE(errors.mean, 0.01) << path;
    EXPECT_LE(errors.p95, 0.04) << path;
    EXPECT_LT(errors.knots, table.size() / 2) << "a fit, not a copy";
    const FitErrors others = judge_fit({table.begin() + 1, table.end()});
    EXPECT_LE(others.mean, 0.01) << path;
  }
}

TEST(NcclTable, SaysWhichLineIsWrong) {
  try {
    parse_nccl_table("size,count,type,time\n10,1,float,5\n20,1,float,x\n", "t.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "t.csv:3: column 4 is 'x', a number above 0 expected");
  }
}

}  // namespace
}  // namespace autodist::studies
