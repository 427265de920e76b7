// Payloads that are too large for one frame: cut by their sender, put together here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// How many frames a payload of so many bytes takes: one, or where it is larger than two pieces, as
// many pieces as it has. Throws Error(kUsage) for more than a slice may have.
std::uint16_t pieces_of(std::size_t bytes, Bytes piece);

// The receiver's side. One thread.
class Assembly {
 public:
  // All pieces but the last are of `piece` bytes.
  explicit Assembly(Bytes piece) : piece_(static_cast<std::size_t>(piece.value)) {}

  struct Taken {
    bool first = false;            // this piece was not there yet
    std::optional<Payload> whole;  // once the last one is
    std::string rider;             // with the last piece; the first one brought it
  };
  // The bytes are copied. Throws Error(kPeersLost) for a piece that does not fit to the others.
  // REQUIRES: header.pieces > 1.
  Taken add(const Frame& frame);

 private:
  using Key = std::tuple<RankNumber, FrameKind, std::uint64_t, MessageId>;
  struct Whole {
    std::shared_ptr<std::byte[]> bytes;
    std::size_t size = 0;    // known with the last piece
    std::vector<bool> came;  // by piece
    std::size_t missing = 0;
    std::string rider;
  };

  std::size_t piece_;
  std::map<Key, Whole> wholes_;
};

}  // namespace autodist::comm
