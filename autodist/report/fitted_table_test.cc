#include "autodist/report/fitted_table.h"

#include <gtest/gtest.h>

namespace autodist::report {
namespace {

const std::vector<std::vector<std::string>> kRows{
    {"variable", "size", "synchronised by"},
    {"encoder.layer.{0,1}.intermediate.dense.weight ×2", "16.0 KiB", "PS at CPU:0"},
    {"fc.bias", "12 B", "PS at CPU:1"}};

TEST(FittedTable, IsAsItIsWhereThereIsRoom) {
  const std::string whole =
      "variable                                              size  synchronised by\n"
      "encoder.layer.{0,1}.intermediate.dense.weight ×2  16.0 KiB  PS at CPU:0\n"
      "fc.bias                                               12 B  PS at CPU:1\n";
  EXPECT_EQ(fitted_table(kRows, {1}, 0), whole);
  EXPECT_EQ(fitted_table(kRows, {1}, 75), whole);
}

TEST(FittedTable, NamesLoseTheirMiddle) {
  EXPECT_EQ(fitted_table(kRows, {1}, 60),
            "variable                               size  synchronised by\n"
            "encoder.lay…diate.dense.weight ×2  16.0 KiB  PS at CPU:0\n"
            "fc.bias                                12 B  PS at CPU:1\n");
}

TEST(FittedTable, HasSeveralLinesARowWhereTooLittleWouldBeLeft) {
  EXPECT_EQ(fitted_table(kRows, {1}, 30),
            "variable\n"
            "     size  synchronised by\n"
            "encoder.la…ate.dense.weight ×2\n"
            " 16.0 KiB  PS at CPU:0\n"
            "fc.bias\n"
            "     12 B  PS at CPU:1\n");
  EXPECT_EQ(fitted_table({{"a", "bb", "cc"}, {"1", "22", "33"}}, {1}, 4),
            "a\n bb\n cc\n1\n 22\n 33\n");
}

TEST(FittedTable, OfNothingIsNothing) { EXPECT_EQ(fitted_table({}, {}, 10), ""); }

}  // namespace
}  // namespace autodist::report
