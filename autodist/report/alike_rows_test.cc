#include "autodist/report/alike_rows.h"

#include <gtest/gtest.h>

namespace autodist::report {
namespace {

std::vector<std::string> names_of(const AlikeRows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows.shown()) names.push_back(row.front());
  return names;
}

using Names = std::vector<std::string>;

TEST(AlikeRows, NamesThatDifferInNumbersShareARow) {
  AlikeRows rows(9);
  for (const char* name : {"a.0.w", "a.0.b", "a.1.w", "head", "a.1.b", "a.2.w"}) {
    rows.add({name, name[4] == 'b' ? "small" : "large"});
  }
  EXPECT_EQ(names_of(rows), (Names{"a.{0,1,2}.w ×3", "a.{0,1}.b ×2", "head"}));
  EXPECT_EQ(rows.hidden(), 0U);
}

TEST(AlikeRows, RowsWithOtherCellsStayApart) {
  AlikeRows rows(9);
  rows.add({"a.0", "PS"});
  rows.add({"a.1", "ring"});
  EXPECT_EQ(names_of(rows), (Names{"a.0", "a.1"}));
}

TEST(AlikeRows, LongOrIncompleteListsOfNumbersBecomeAStar) {
  AlikeRows many(9);
  for (int i = 0; i < 5; ++i) many.add({"a." + std::to_string(i)});
  EXPECT_EQ(names_of(many), Names{"a.* ×5"});
  AlikeRows some(9);
  for (const char* name : {"a.0.b.0", "a.0.b.1", "a.1.b.0"}) some.add({name});
  EXPECT_EQ(names_of(some), Names{"a.*.b.* ×3"});
}

TEST(AlikeRows, OnlySoManyAreShown) {
  AlikeRows rows(1);
  for (const char* name : {"x", "a.0", "a.1"}) rows.add({name});
  EXPECT_EQ(names_of(rows), Names{"x"});
  EXPECT_EQ(rows.hidden(), 2U);
  AlikeRows each(0);
  for (const char* name : {"x", "a.0", "a.1"}) each.add({name});
  EXPECT_EQ(names_of(each), (Names{"x", "a.0", "a.1"}));
}

}  // namespace
}  // namespace autodist::report
