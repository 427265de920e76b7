// What a rank whose model is on a device takes of its machine's memory.

#pragma once

#include <cstdint>

#include "autodist/base/units.h"

namespace autodist::program {

// Pinned memory at most: for gradients on their way, and for the host's copies of what is trained
// on a device. What does not fit into it is in ordinary memory.
inline constexpr Bytes kMostPinnedMemory{std::int64_t{4} << 30};

}  // namespace autodist::program
