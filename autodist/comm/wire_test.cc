#include "autodist/comm/wire.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "autodist/base/check.h"

namespace autodist::comm {
namespace {

const FrameHeader kHeader{FrameKind{17}, 2, 0x0102030405060708, 17, 3, -5, 0, 1, 6};

std::string reason(WireHeader bytes, std::size_t size, std::size_t payload) {
  const auto decoded = decode(bytes.data(), size, payload);
  return std::holds_alternative<Malformed>(decoded) ? std::get<Malformed>(decoded).reason : "";
}

// The example of docs/formats/wire.md.
TEST(Wire, TheLayoutIsTheDocumentedOne) {
  const std::vector<int> expected{
      0x41, 0x44, 0x46, 0x57, 4,    0,    17,   0,    3,  0, 0, 0, 2, 0, 0, 0,
      0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 17, 0, 0, 0, 0, 0, 0, 0,
      0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 12, 0, 0, 0, 6, 0, 0, 0};
  std::vector<int> bytes;
  for (const std::byte b : encode(kHeader, 12)) bytes.push_back(std::to_integer<int>(b));
  EXPECT_EQ(bytes, expected);
}

TEST(Wire, WhatIsEncodedIsDecoded) {
  const WireHeader bytes = encode(kHeader, 12);
  EXPECT_EQ(std::get<FrameHeader>(decode(bytes.data(), bytes.size(), 12)), kHeader);
  EXPECT_EQ(place_of(bytes.data()), PayloadPlace::kHere);
  const WireHeader shared = encode(kHeader, 16, PayloadPlace::kShared);
  EXPECT_EQ(std::get<FrameHeader>(decode(shared.data(), shared.size(), 16)), kHeader);
  EXPECT_EQ(place_of(shared.data()), PayloadPlace::kShared);
  FrameHeader piece = kHeader;
  piece.piece = 4;
  piece.pieces = 300;
  const WireHeader fifth = encode(piece, 12);
  EXPECT_EQ(std::get<FrameHeader>(decode(fifth.data(), fifth.size(), 12)), piece);
}

TEST(Wire, ARiderFollowsTheHeader) {
  const WireHeader bytes = encode(kHeader, 12);
  std::string part(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  part += "rider";
  EXPECT_EQ(std::get<FrameHeader>(decode(part.data(), part.size(), 12)), kHeader);
  EXPECT_EQ(rider_of(part.data(), part.size()), "rider");
}

TEST(Wire, RefusesWithAReason) {
  const WireHeader good = encode(kHeader, 12);
  EXPECT_EQ(reason(good, 47, 12), "a header of 47 bytes, at least 48");
  EXPECT_EQ(reason(good, 48, 7), "payload of 7 bytes, 12 announced");
  WireHeader bad = good;
  bad[0] = std::byte{0};
  EXPECT_EQ(reason(bad, 48, 12), "not a frame of AutoDist");
  bad = good;
  bad[4] = std::byte{9};
  EXPECT_EQ(reason(bad, 48, 12), "protocol version 9, expected 4");
  for (const int kind : {0, 6, 15, 64, 255}) {
    bad = good;
    bad[6] = static_cast<std::byte>(kind);
    EXPECT_EQ(reason(bad, 48, 12), "unknown kind " + std::to_string(kind));
  }
  bad = good;
  bad[7] = std::byte{2};
  EXPECT_EQ(reason(bad, 48, 12), "a payload at an unknown place 2");
  bad = good;
  bad[28] = std::byte{1};
  EXPECT_EQ(reason(bad, 48, 12), "piece 1 of 1");
  bad[31] = std::byte{0xff};
  EXPECT_EQ(reason(bad, 48, 12), "piece 1 of 65281");
  bad = good;
  bad[46] = std::byte{1};
  EXPECT_EQ(reason(bad, 48, 12), "1 where a header has 0");
  bad = good;
  bad[43] = std::byte{0x80};
  EXPECT_NE(reason(bad, 48, 12).find("at most"), std::string::npos);
}

TEST(Wire, RefusesToEncodeAPayloadThatNobodyWouldTake) {
  EXPECT_THROW(encode(kHeader, kLargestPayload + 1), InternalError);
}

// Whatever decodes, encodes to the same bytes: there is one form for each frame.
TEST(Wire, EveryDamagedHeaderIsRefusedOrIsAnotherFrame) {
  std::mt19937 random(3);
  const WireHeader good = encode(kHeader, 12);
  for (int trial = 0; trial < 20'000; ++trial) {
    WireHeader bytes = good;
    for (unsigned flips = random() % 4 + 1; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
    }
    const auto decoded = decode(bytes.data(), bytes.size(), 12);
    if (const auto* header = std::get_if<FrameHeader>(&decoded)) {
      EXPECT_EQ(encode(*header, 12, place_of(bytes.data())), bytes);
    }
  }
}

}  // namespace
}  // namespace autodist::comm
