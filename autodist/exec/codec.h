// Gradients to fewer bytes and back (program/compression.h says what the codecs are).
//
// A payload of the uncompressed size is uncompressed: so goes what would not get smaller.

#pragma once

#include <cstddef>
#include <cstdint>

#include "autodist/base/dtype.h"
#include "autodist/comm/transport.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// The payload of `count` elements, of contribution_bytes(). With `residual` (as many elements; null
// without error feedback) it encodes values + residual and leaves there what was lost. Ties of
// magnitude go to the lower place, so the same input gives the same bytes. REQUIRES: encodes(), a
// floating dtype, aligned pointers, count < 2^32.
comm::Payload encode(const program::Compression& compression, DType dtype, std::int64_t count,
                     const std::byte* values, std::byte* residual);

// encode() of a sum of encoded contributions: a cast loses once more (into `residual`), while of a
// kTopK sum every element that is not zero leaves.
comm::Payload encode_sum(const program::Compression& compression, DType dtype, std::int64_t count,
                         const std::byte* values, std::byte* residual);

// All `count` elements of a payload of encode() or encode_sum(); zeros where it says nothing.
// Throws InternalError for a size or a place that cannot be.
void decode(const program::Compression& compression, DType dtype, std::int64_t count,
            const comm::Payload& payload, std::byte* values);
// The same into memory of its own; the payload itself where the codec encodes no such elements.
comm::Payload decoded(const program::Compression& compression, DType dtype, std::int64_t count,
                      comm::Payload payload);

}  // namespace autodist::exec
