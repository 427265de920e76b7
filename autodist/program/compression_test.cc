#include "autodist/program/compression.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace autodist::program {
namespace {

TEST(Compression, HasAName) {
  EXPECT_EQ(to_string(Compression{}), "");
  EXPECT_EQ(to_string({Codec::kFp16}), "fp16");
  EXPECT_EQ(to_string({Codec::kBf16, true}), "bf16+ef");
  EXPECT_EQ(to_string({Codec::kTopK, true, 0.01}), "topk(0.01)+ef");
  EXPECT_EQ(to_string({Codec::kPowerSgd, true, 0, 2}), "powersgd(2)+ef");
  EXPECT_EQ(to_string({Codec::kPowerSgd, false, 0, 4, false}), "powersgd(4,cold)");
}

TEST(Compression, NamesEveryCodecOnce) {
  std::set<std::string> names;
  for (const CodecTraits& each : kCodecs) EXPECT_TRUE(names.insert(each.name).second) << each.name;
}

TEST(Compression, ReadsAGradientAsTheMatrixOfItsFirstDimension) {
  const MatrixShape kernel = matrix_of({64, 3, 7, 7});
  EXPECT_EQ(kernel.rows, 64);
  EXPECT_EQ(kernel.columns, 147);
  EXPECT_EQ(matrix_of({64}).columns, 0);
  EXPECT_EQ(matrix_of({}).rows, 0);
}

TEST(Compression, FactorsWhereThatHalvesTheElements) {
  const auto rank_of = [](std::int32_t rank, std::int64_t rows, std::int64_t columns) {
    return factor_rank({Codec::kPowerSgd, true, 0, rank}, {rows, columns});
  };
  EXPECT_EQ(rank_of(2, 100, 100), 2);              // 400 of 10,000
  EXPECT_EQ(rank_of(25, 100, 100), std::nullopt);  // 5,000: half
  EXPECT_EQ(rank_of(24, 100, 100), 24);
  EXPECT_EQ(rank_of(1, 1, 1000), std::nullopt);
  EXPECT_EQ(rank_of(1, 0, 0), std::nullopt);
  EXPECT_EQ(factor_rank({Codec::kFp16}, {100, 100}), std::nullopt);
}

}  // namespace
}  // namespace autodist::program
