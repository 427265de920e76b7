// Frames as bytes: docs/formats/wire.md. What comes from a socket is believed only after decode().

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "autodist/comm/transport.h"

namespace autodist::comm {

inline constexpr std::uint16_t kWireVersion = 4;
inline constexpr std::size_t kWireHeaderSize = 48;
// Of one frame; larger ones are refused by sender and receiver.
inline constexpr std::size_t kLargestPayload = std::size_t{256} << 20;
// Of one payload that travels in pieces (assembly.h).
inline constexpr std::uint16_t kMostPieces = 1 << 15;

using WireHeader = std::array<std::byte, kWireHeaderSize>;

// Where a frame's payload is: behind the header, or in memory that the ranks share, with a
// reference to it behind the header (zmq/shared_memory.h).
enum class PayloadPlace : std::uint8_t { kHere = 0, kShared = 1 };

// `payload_size`: of the frame's second part. REQUIRES: payload_size <= kLargestPayload. A rider
// follows the header in the first part.
WireHeader encode(const FrameHeader& header, std::size_t payload_size,
                  PayloadPlace place = PayloadPlace::kHere);

// Why bytes are not a frame: "payload of 7 bytes, 12 announced".
struct Malformed {
  std::string reason;
};

// The header of a frame's first part, where a rider may follow it; a payload of `payload_size`
// bytes came with it. Never throws on bytes.
std::variant<FrameHeader, Malformed> decode(const void* bytes, std::size_t size,
                                            std::size_t payload_size);
// Of a header that decode() accepted.
PayloadPlace place_of(const void* bytes);
// The rider in all `size` bytes of a header that decode() accepted.
std::string rider_of(const void* bytes, std::size_t size);

}  // namespace autodist::comm
