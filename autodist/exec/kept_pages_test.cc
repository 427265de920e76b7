#include "autodist/exec/kept_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <map>
#include <random>

namespace autodist::exec {
namespace {

constexpr std::size_t kMebibyte = 1 << 20;

char* take_filled(KeptPages& pages, std::size_t bytes, char with) {
  auto* const memory = static_cast<char*>(pages.take(bytes));
  std::memset(memory, with, bytes);
  return memory;
}

TEST(KeptPages, ASizeThatComesAgainFindsItsPagesAsTheyWere) {
  KeptPages pages;
  char* const first = take_filled(pages, 3 * kMebibyte, 'a');
  EXPECT_EQ(pages.give_back(first), 3 * kMebibyte);
  auto* const again = static_cast<char*>(pages.take(3 * kMebibyte));
  EXPECT_EQ(again, first);
  EXPECT_EQ(again[3 * kMebibyte - 1], 'a');  // not cleared: the kernel never had them
  pages.give_back(again);
}

TEST(KeptPages, ASmallerOneIsCutFromALargerAndALargerGrowsFromASmaller) {
  KeptPages pages;
  pages.give_back(take_filled(pages, 8 * kMebibyte, 'b'));
  auto* const front = static_cast<char*>(pages.take(2 * kMebibyte));
  EXPECT_EQ(pages.use().kept, 6 * kMebibyte);
  auto* const rest = static_cast<char*>(pages.take(6 * kMebibyte));
  EXPECT_EQ(pages.use().kept, 0U);
  EXPECT_EQ(front[0], 'b');
  EXPECT_EQ(rest[6 * kMebibyte - 1], 'b');
  pages.give_back(front);
  pages.give_back(rest);
  auto* const grown = static_cast<char*>(pages.take(7 * kMebibyte));
  EXPECT_EQ(grown[6 * kMebibyte - 1], 'b');
  EXPECT_EQ(grown[7 * kMebibyte - 1], 0);
  EXPECT_EQ(pages.use().kept, 1 * kMebibyte);
  pages.give_back(grown);
}

TEST(KeptPages, WhatIsKeptNeverAddsToThePeak) {
  KeptPages pages;
  std::mt19937 random(7);
  struct Held {
    std::size_t bytes;
    char with;
  };
  std::map<char*, Held> held;
  std::size_t found_kept = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    if (held.size() < 12 && random() % 2 == 0) {
      const std::size_t bytes = 1 + random() % kMebibyte;
      const auto with = static_cast<char>(turn);
      const std::size_t before = pages.use().kept;
      char* const memory = take_filled(pages, bytes, with);
      if (pages.use().kept < before) ++found_kept;
      held[memory] = {bytes, with};
    } else if (!held.empty()) {
      const auto one = std::next(held.begin(), static_cast<long>(random() % held.size()));
      const auto& [memory, what] = *one;
      // What another holder wrote would be seen here.
      for (const std::size_t at : {std::size_t{0}, what.bytes / 2, what.bytes - 1}) {
        ASSERT_EQ(memory[at], what.with) << "turn " << turn;
      }
      EXPECT_GT(pages.give_back(memory), 0U);
      held.erase(one);
    }
    std::size_t bytes_held = 0;
    for (const auto& [memory, what] : held) bytes_held += what.bytes;
    const KeptPages::Use use = pages.use();
    ASSERT_GE(use.in_use, bytes_held);
    ASSERT_LE(use.in_use + use.kept, use.most_in_use) << "turn " << turn;
  }
  EXPECT_GT(found_kept, 500U);
  for (const auto& [memory, what] : held) pages.give_back(memory);
}

TEST(KeptPages, StartsOverWithNothingKept) {
  KeptPages pages;
  void* const stays = pages.take(kMebibyte);
  pages.give_back(pages.take(5 * kMebibyte));
  pages.start_over();
  EXPECT_EQ(pages.use().kept, 0U);
  EXPECT_EQ(pages.use().most_in_use, kMebibyte);
  pages.give_back(stays);
  EXPECT_EQ(pages.use().kept, kMebibyte);
}

TEST(KeptPages, HasNothingForSizesThatNoMemoryHas) {
  KeptPages pages;
  pages.give_back(pages.take(kMebibyte));
  EXPECT_EQ(pages.take(std::numeric_limits<std::size_t>::max()), nullptr);
  EXPECT_EQ(pages.use().kept, kMebibyte);
}

TEST(KeptPages, TellsMemoryThatIsNotItsOwn) {
  KeptPages pages;
  int other = 0;
  EXPECT_EQ(pages.give_back(&other), 0U);
  void* const memory = pages.take(1);
  EXPECT_GT(pages.give_back(memory), 0U);
  EXPECT_EQ(pages.give_back(memory), 0U);
}

TEST(KeptPages, MoreThanTheSystemHasIsNull) {
  KeptPages pages;
  EXPECT_EQ(pages.take(std::size_t{1} << 62), nullptr);
  EXPECT_EQ(pages.use().in_use, 0U);
}

}  // namespace
}  // namespace autodist::exec
