// The two 16-bit floating types as plain bits, widened to float and rounded back to nearest even;
// and which C++ type stands for a dtype.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "autodist/base/check.h"
#include "autodist/base/dtype.h"

namespace autodist::exec {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(BFloat16 value) { return float_of(std::uint32_t{value.bits} << 16); }

inline float widen(Float16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // The exponent's bias is 15 instead of 127: shift the bits into place, then scale by 2^112. A
  // subnormal comes out right because the multiplication normalises it.
  const float scaled = float_of(magnitude << 13) * float_of(0x77800000u);
  return float_of(bits_of(scaled) | sign);
}

template <typename T>
struct Narrow {
  static T from(T value) { return value; }
};

template <>
struct Narrow<BFloat16> {
  static BFloat16 from(float value) {
    const std::uint32_t bits = bits_of(value);
    if (value != value) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
    return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
  }
};

template <>
struct Narrow<Float16> {
  static Float16 from(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
    if (magnitude < 0x38800000u) {
      // Subnormal: adding 0.5 leaves a multiple of 2^-24 in the low bits, rounded to nearest even.
      const float rounded = float_of(magnitude) + 0.5f;
      return {static_cast<std::uint16_t>(sign | (bits_of(rounded) - 0x3f000000u))};
    }
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
};

template <typename T>
T narrow(decltype(widen(T{})) value) {
  return Narrow<T>::from(value);
}

// Bytes as elements of their type. REQUIRES: they are aligned for it.
template <typename T>
const T* elements_at(const std::byte* data) {
  return reinterpret_cast<const T*>(data);  // NOLINT
}
template <typename T>
T* elements_at(std::byte* data) {
  return reinterpret_cast<T*>(data);  // NOLINT
}

// Calls visit(T{}) with the element type of `dtype`. REQUIRES: a floating dtype.
template <typename Visit>
auto with_element_type(DType dtype, Visit visit) {
  AD_CHECK(is_floating(dtype)) << name_of(dtype) << " is no type of gradients";
  if (dtype == DType::kFloat64) return visit(double{});
  if (dtype == DType::kFloat16) return visit(Float16{});
  if (dtype == DType::kBFloat16) return visit(BFloat16{});
  return visit(float{});
}

}  // namespace autodist::exec
