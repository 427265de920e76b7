#include "autodist/comm/wire.h"

#include <fmt/format.h>

#include "autodist/base/check.h"

namespace autodist::comm {
namespace {

constexpr std::uint32_t kMagic = 0x57464441;  // "ADFW" on the wire

// Fields by offset; little-endian whatever the machine is.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kKindAt = 6;
constexpr std::size_t kPlaceAt = 7;
constexpr std::size_t kFromAt = 8;
constexpr std::size_t kGenerationAt = 12;
constexpr std::size_t kStepAt = 16;
constexpr std::size_t kIdAt = 24;
constexpr std::size_t kPieceAt = 28;
constexpr std::size_t kMorePiecesAt = 30;  // how many there are beside the first
constexpr std::size_t kSamplesAt = 32;
constexpr std::size_t kPayloadSizeAt = 40;
constexpr std::size_t kChannelAt = 44;
constexpr std::size_t kZeroAt = 46;  // two bytes that mean nothing yet

template <typename Unsigned>
void put(WireHeader& out, std::size_t at, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    out[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <typename Unsigned>
Unsigned get(const std::byte* in, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    value |= static_cast<std::uint64_t>(in[at + i]) << (8 * i);
  }
  return static_cast<Unsigned>(value);
}

bool is_known(std::uint8_t kind) {
  const bool own = static_cast<int>(FrameKind::kAcknowledge) <= kind &&
                   kind <= static_cast<int>(FrameKind::kGoodbye);
  return own || (is_message(FrameKind{kind}) && kind < kKindLimit);
}

}  // namespace

WireHeader encode(const FrameHeader& header, std::size_t payload_size, PayloadPlace place) {
  AD_CHECK(payload_size <= kLargestPayload) << payload_size << " bytes in one frame";
  WireHeader out{};
  put(out, kMagicAt, kMagic);
  put(out, kVersionAt, kWireVersion);
  put(out, kKindAt, static_cast<std::uint8_t>(header.kind));
  put(out, kPlaceAt, static_cast<std::uint8_t>(place));
  put(out, kFromAt, header.from);
  put(out, kGenerationAt, header.generation);
  put(out, kStepAt, header.step);
  put(out, kIdAt, header.id);
  AD_CHECK(header.piece < header.pieces) << header.piece << " of " << header.pieces << " pieces";
  put(out, kPieceAt, header.piece);
  put(out, kMorePiecesAt, static_cast<std::uint16_t>(header.pieces - 1));
  put(out, kSamplesAt, static_cast<std::uint64_t>(header.samples));
  put(out, kPayloadSizeAt, static_cast<std::uint32_t>(payload_size));
  put(out, kChannelAt, header.channel);
  return out;
}

std::variant<FrameHeader, Malformed> decode(const void* bytes, std::size_t size,
                                            std::size_t payload_size) {
  if (size < kWireHeaderSize) {
    return Malformed{fmt::format("a header of {} bytes, at least {}", size, kWireHeaderSize)};
  }
  const auto* in = static_cast<const std::byte*>(bytes);
  if (get<std::uint32_t>(in, kMagicAt) != kMagic) return Malformed{"not a frame of AutoDist"};
  if (const auto version = get<std::uint16_t>(in, kVersionAt); version != kWireVersion) {
    return Malformed{fmt::format("protocol version {}, expected {}", version, kWireVersion)};
  }
  const auto kind = get<std::uint8_t>(in, kKindAt);
  if (!is_known(kind)) return Malformed{fmt::format("unknown kind {}", kind)};
  const auto place = get<std::uint8_t>(in, kPlaceAt);
  if (place > static_cast<int>(PayloadPlace::kShared)) {
    return Malformed{fmt::format("a payload at an unknown place {}", place)};
  }
  const auto piece = get<std::uint16_t>(in, kPieceAt);
  const auto more_pieces = get<std::uint16_t>(in, kMorePiecesAt);
  if (piece > more_pieces || more_pieces >= kMostPieces) {
    return Malformed{fmt::format("piece {} of {}", piece, more_pieces + 1)};
  }
  const auto announced = get<std::uint32_t>(in, kPayloadSizeAt);
  if (announced > kLargestPayload) {
    return Malformed{fmt::format("a payload of {} bytes, at most {}", announced, kLargestPayload)};
  }
  if (announced != payload_size) {
    return Malformed{fmt::format("payload of {} bytes, {} announced", payload_size, announced)};
  }
  if (const auto zero = get<std::uint16_t>(in, kZeroAt); zero != 0) {
    return Malformed{fmt::format("{} where a header has 0", zero)};
  }
  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  header.from = get<std::uint32_t>(in, kFromAt);
  header.generation = get<std::uint32_t>(in, kGenerationAt);
  header.step = get<std::uint64_t>(in, kStepAt);
  header.id = get<std::uint32_t>(in, kIdAt);
  header.samples = static_cast<std::int64_t>(get<std::uint64_t>(in, kSamplesAt));
  header.piece = piece;
  header.pieces = static_cast<std::uint16_t>(more_pieces + 1);
  header.channel = get<std::uint16_t>(in, kChannelAt);
  return header;
}

PayloadPlace place_of(const void* bytes) {
  return PayloadPlace{get<std::uint8_t>(static_cast<const std::byte*>(bytes), kPlaceAt)};
}

std::string rider_of(const void* bytes, std::size_t size) {
  return {static_cast<const char*>(bytes) + kWireHeaderSize, size - kWireHeaderSize};
}

}  // namespace autodist::comm
