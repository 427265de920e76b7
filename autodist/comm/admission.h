// Which frames an exchange takes: of its own generation, and each exactly once.

#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "autodist/comm/transport.h"

namespace autodist::comm {

// All messages that travel between two ranks at a time, waiting and unacknowledged ones included,
// belong to steps that lie less than this apart. (A rank runs ahead by its staleness, plus one.)
inline constexpr std::uint64_t kStepsApart = 64;

// Ids above this are refused: what a peer sends must not decide how much we remember.
inline constexpr MessageId kIdLimit = 1u << 20;

// What becomes of a frame at an exchange, by its header alone.
enum class FrameUse : std::uint8_t {
  kSignOfLife,  // says nothing here but that its sender is there
  kLater,       // is for whoever reads next: control frames, and those of a later generation
  kRefused,     // of an earlier generation, or with an id out of range
  kTaken,
};
FrameUse use_of(const FrameHeader& header, std::uint32_t generation);

// Remembers which frames of one kind from one peer have come, and forgets old steps. Memory: one
// bit per id and step over kStepsApart steps.
class Admission {
 public:
  // True the first time for each (step, id). A frame kStepsApart or more steps older than the
  // newest is a late copy: senders keep to kStepsApart. REQUIRES: id < kIdLimit.
  [[nodiscard]] bool admit(std::uint64_t step, MessageId id);
  // Whether admit() would refuse it.
  [[nodiscard]] bool came(std::uint64_t step, MessageId id) const;

 private:
  std::uint64_t oldest_ = 0;            // step of came_.front()
  std::deque<std::vector<bool>> came_;  // by step, then by id
};

}  // namespace autodist::comm
