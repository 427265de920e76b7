// What a control frame is for: its `step` says so (docs/formats/wire.md, Control messages).

#pragma once

#include <cstdint>

namespace autodist::comm {

enum class ControlRole : std::uint64_t {
  kOpening = 1,  // agreement: what is exchanged, and how large it is
  kBody,         // agreement: the next bytes
  kReceipt,      // agreement: a body arrived
  kKey,          // a key and its value, for everybody (c10d/shared_keys.h)
  kLastKey,      // the sender has set all its keys and read those of others
};

}  // namespace autodist::comm
