// How a gradient is made smaller on the wire. Parameters that come back are never compressed: an
// owner's master copy keeps its bits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/dtype.h"

namespace autodist::program {

enum class Codec : std::uint8_t {
  kNone,
  kFp16,  // IEEE half precision; what is larger becomes the largest finite value
  kBf16,  // float's exponent, 8 bits of significand
  kTopK,  // the elements of largest magnitude, with their places
  // Two thin matrices whose product is near the gradient: one step of a power iteration (Vogels et
  // al., "PowerSGD", NeurIPS 2019). Sums of factors are factors of sums, so all-reduces only.
  kPowerSgd,
};

// Which elements are encoded together: what becomes of one depends on the others of its unit.
enum class EncodedUnit : std::uint8_t {
  kNone,      // nothing is encoded
  kElement,   // each by itself, into fewer bytes
  kSlice,     // all of a slice
  kGradient,  // all of a gradient, into factors that a library sums; never a slice
};

// What holds of a codec whatever its parameters.
struct CodecTraits {
  Codec codec;
  const char* name;  // in files, in options and on pages; "" for none
  EncodedUnit unit;
  std::size_t element_bytes;  // what each element becomes; 0 where elements keep their type
};
// A row per codec, in the order of Codec.
inline constexpr CodecTraits kCodecs[] = {
    {Codec::kNone, "", EncodedUnit::kNone, 0},
    {Codec::kFp16, "fp16", EncodedUnit::kElement, 2},
    {Codec::kBf16, "bf16", EncodedUnit::kElement, 2},
    {Codec::kTopK, "topk", EncodedUnit::kSlice, 0},
    {Codec::kPowerSgd, "powersgd", EncodedUnit::kGradient, 0},
};
constexpr const CodecTraits& traits_of(Codec codec) {
  return kCodecs[static_cast<std::size_t>(codec)];
}
constexpr bool codecs_are_in_order() {
  for (const CodecTraits& each : kCodecs) {
    if (traits_of(each.codec).codec != each.codec) return false;
  }
  return true;
}
static_assert(codecs_are_in_order());

struct Compression {
  Codec codec = Codec::kNone;
  // What the codec loses is added to the next step's gradient before it is encoded (Karimireddy et
  // al., "Error feedback fixes SignSGD", ICML 2019).
  bool error_feedback = false;
  double density = 0;      // kTopK: share of the elements that leave, in (0, 1]; 0 for the others
  std::int32_t rank = 0;   // kPowerSgd: columns of each factor, from 1 on; 0 for the others
  bool warm_start = true;  // kPowerSgd: iterate on from the last step's factor

  friend bool operator==(const Compression& a, const Compression& b) {
    return a.codec == b.codec && a.error_feedback == b.error_feedback && a.density == b.density &&
           a.rank == b.rank && a.warm_start == b.warm_start;
  }
  friend bool operator!=(const Compression& a, const Compression& b) { return !(a == b); }
};

// "fp16", "bf16+ef", "topk(0.01)+ef", "powersgd(2)+ef", "powersgd(2,cold)"; "" for none.
std::string to_string(const Compression& compression);

// Whether a codec makes anything smaller of elements of this type: a cast to 16 bits nothing of
// 16-bit ones.
bool encodes(const Compression& compression, DType dtype);

// Elements that leave of `elements` under kTopK: at least one.
std::int64_t kept(const Compression& compression, std::int64_t elements);

// A gradient as the matrix that kPowerSgd factors: the first dimension by all others. Without
// elements for less than two dimensions.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
MatrixShape matrix_of(const std::vector<std::int64_t>& shape);
// The columns of its factors; nothing where both together would not have less than half of its
// elements, so that it travels as it is.
std::optional<std::int64_t> factor_rank(const Compression& compression, MatrixShape shape);

// Bytes of one contribution of `elements` elements of `dtype`. Never more than uncompressed: where
// the codec would not gain, the elements travel as they are.
std::int64_t contribution_bytes(const Compression& compression, DType dtype, std::int64_t elements);

}  // namespace autodist::program
