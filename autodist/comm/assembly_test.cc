#include "autodist/comm/assembly.h"

#include <gtest/gtest.h>

#include <string>

#include "autodist/base/error.h"
#include "autodist/comm/wire.h"

namespace autodist::comm {
namespace {

constexpr Bytes kPiece{4};

Frame piece(std::uint16_t number, std::uint16_t pieces, const std::string& bytes,
            RankNumber from = 1) {
  FrameHeader header{FrameKind{19}, 1, 3, 7, from, 0};
  header.piece = number;
  header.pieces = pieces;
  return {header, Payload::copy_of(bytes)};
}

TEST(Assembly, OnlyWhatIsLongIsCut) {
  EXPECT_EQ(pieces_of(0, kPiece), 1);
  EXPECT_EQ(pieces_of(8, kPiece), 1);
  EXPECT_EQ(pieces_of(9, kPiece), 3);
  EXPECT_EQ(pieces_of(12, kPiece), 3);
  EXPECT_EQ(pieces_of(13, kPiece), 4);
  EXPECT_THROW(pieces_of(std::size_t{4} * kMostPieces + 1, kPiece), Error);
}

TEST(Assembly, PiecesInAnyOrderMakeTheWholeOnce) {
  Assembly assembly(kPiece);
  EXPECT_TRUE(assembly.add(piece(2, 3, "x")).first);
  EXPECT_FALSE(assembly.add(piece(2, 3, "x")).first) << "a copy";
  EXPECT_FALSE(assembly.add(piece(0, 3, "abcd", 2)).whole) << "another rank's";
  Frame first = piece(0, 3, "abcd");
  first.rider = "rider";
  EXPECT_FALSE(assembly.add(first).whole);
  const Assembly::Taken taken = assembly.add(piece(1, 3, "efgh"));
  ASSERT_TRUE(taken.whole);
  EXPECT_EQ(taken.rider, "rider");
  EXPECT_EQ(taken.whole->to_string(), "abcdefghx");
}

TEST(Assembly, RefusesPiecesThatDoNotFit) {
  Assembly assembly(kPiece);
  EXPECT_THROW(assembly.add(piece(0, 3, "abc")), Error);
  EXPECT_TRUE(assembly.add(piece(0, 3, "abcd")).first);
  EXPECT_THROW(assembly.add(piece(1, 4, "abcd")), Error);
  EXPECT_THROW(assembly.add(piece(2, 3, "abcde")), Error);
}

}  // namespace
}  // namespace autodist::comm
