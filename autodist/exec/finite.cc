#include "autodist/exec/finite.h"

#include <algorithm>

#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

// An exponent of ones alone marks infinity and NaN. Without the sign, every finite number is below
// `infinity` as an integer: a maximum, which compilers turn into vectors, says it all.
template <typename Bits>
bool below_infinity(const std::byte* data, std::int64_t count, Bits infinity, Bits magnitude) {
  constexpr std::int64_t kBlock = 4096;  // an early end, but not a branch per element
  const auto* bits = reinterpret_cast<const Bits*>(data);  // NOLINT: aligned, says the header
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, count);
    Bits largest = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      largest = std::max<Bits>(largest, bits[i] & magnitude);
    }
    if (largest >= infinity) return false;
  }
  return true;
}

}  // namespace

OnNonFinite on_nonfinite_from_name(const std::string& name, const std::string& option) {
  if (name == "stop") return OnNonFinite::kStop;
  if (name == "ignore") return OnNonFinite::kIgnore;
  fail(ErrorCode::kUsage, "{}: '{}', stop or ignore expected", option, name);
}

bool all_finite(const std::byte* data, DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::kFloat16:
      return below_infinity<std::uint16_t>(data, count, 0x7C00U, 0x7FFFU);
    case DType::kBFloat16:
      return below_infinity<std::uint16_t>(data, count, 0x7F80U, 0x7FFFU);
    case DType::kComplex64:
      return all_finite(data, DType::kFloat32, 2 * count);
    case DType::kFloat32:
      return below_infinity<std::uint32_t>(data, count, 0x7F800000U, 0x7FFFFFFFU);
    case DType::kComplex128:
      return all_finite(data, DType::kFloat64, 2 * count);
    case DType::kFloat64:
      return below_infinity<std::uint64_t>(data, count, 0x7FF0000000000000U, 0x7FFFFFFFFFFFFFFFU);
    default:
      return true;
  }
}

}  // namespace autodist::exec
