// How a gradient is made smaller on the wire. Parameters that come back are never compressed: an
// owner's master copy keeps its bits.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/base/dtype.h"

namespace autodist::ir {

enum class Codec : std::uint8_t {
  kNone,
  kFp16,  // IEEE half precision; what is larger becomes the largest finite value
  kBf16,  // float's exponent, 8 bits of significand
  kTopK,  // the elements of largest magnitude, with their places
};

struct Compression {
  Codec codec = Codec::kNone;
  // What the codec loses is added to the next step's gradient before it is encoded (Karimireddy et
  // al., "Error feedback fixes SignSGD", ICML 2019).
  bool error_feedback = false;
  double density = 0;  // kTopK: share of the elements that leave, in (0, 1]; 0 for the others

  friend bool operator==(const Compression& a, const Compression& b) {
    return a.codec == b.codec && a.error_feedback == b.error_feedback && a.density == b.density;
  }
  friend bool operator!=(const Compression& a, const Compression& b) { return !(a == b); }
};

// "fp16", "bf16+ef", "topk(0.01)+ef"; "" for none.
std::string to_string(const Compression& compression);

// Elements that leave of `elements` under kTopK: at least one.
std::int64_t kept(const Compression& compression, std::int64_t elements);

// Bytes of one contribution of `elements` elements of `dtype`. Never more than uncompressed: where
// the codec would not gain, the elements travel as they are.
std::int64_t contribution_bytes(const Compression& compression, DType dtype, std::int64_t elements);

}  // namespace autodist::ir
