// What a control frame is for: its `step` says so (docs/formats/wire.md, Control messages).

#pragma once

#include <cstdint>
#include <utility>

#include "autodist/comm/transport.h"

namespace autodist::comm {

enum class ControlRole : std::uint64_t {
  kOpening = 1,  // agreement: what is exchanged, and how large it is
  kBody,         // agreement: the next bytes
  kReceipt,      // agreement: a body arrived
  kKey,          // a key and its value, for everybody (c10d/shared_keys.h)
  kLastKey,      // the sender has set all its keys and read those of others
};

inline ControlRole role_of(const Frame& frame) {
  return static_cast<ControlRole>(frame.header.step);
}

inline Frame control_frame(ControlRole role, Payload payload) {
  Frame frame;
  frame.header.kind = FrameKind::kControl;
  frame.header.step = static_cast<std::uint64_t>(role);
  frame.payload = std::move(payload);
  return frame;
}

}  // namespace autodist::comm
