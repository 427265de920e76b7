#include "autodist/comm/assembly.h"

#include <cstring>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/comm/wire.h"

namespace autodist::comm {
namespace {

// Pieces are copied once more where they arrive; but a frame that takes seconds on a slow link is
// sent again, and other frames and heartbeats wait behind it.
constexpr std::size_t kPiecesInAFrame = 2;

}  // namespace

std::uint16_t pieces_of(std::size_t bytes, Bytes piece) {
  const auto size = static_cast<std::size_t>(piece.value);
  if (bytes <= kPiecesInAFrame * size) return 1;
  const std::size_t pieces = (bytes + size - 1) / size;
  if (pieces > kMostPieces) {
    fail(ErrorCode::kUsage, "send: {} bytes at once, at most {}. Split the variable", bytes,
         kMostPieces * size);
  }
  return static_cast<std::uint16_t>(pieces);
}

Assembly::Taken Assembly::add(const Frame& frame) {
  const FrameHeader& header = frame.header;
  const auto entry = wholes_.try_emplace({header.from, header.kind, header.step, header.id});
  Whole& whole = entry.first->second;
  if (entry.second) {
    // Not written to before a piece comes: what is only announced takes no memory.
    whole.bytes.reset(new std::byte[header.pieces * piece_]);
    whole.came.resize(header.pieces);
    whole.missing = header.pieces;
  }
  const bool last = header.piece + 1 == header.pieces;
  const std::size_t size = frame.payload.size;
  if (header.pieces != whole.came.size() || (last ? size > piece_ : size != piece_)) {
    fail(ErrorCode::kPeersLost,
         "rank {}: a piece of {} bytes ({} of {}) does not fit to the others", header.from, size,
         header.piece, header.pieces);
  }
  if (whole.came[header.piece]) return {};
  whole.came[header.piece] = true;
  std::memcpy(whole.bytes.get() + header.piece * piece_, frame.payload.data, size);
  if (header.piece == 0) whole.rider = frame.rider;
  if (last) whole.size = header.piece * piece_ + size;
  if (--whole.missing > 0) return {true, std::nullopt, ""};
  Taken taken{true, Payload{whole.bytes.get(), whole.size, whole.bytes}, std::move(whole.rider)};
  wholes_.erase(entry.first);
  return taken;
}

}  // namespace autodist::comm
