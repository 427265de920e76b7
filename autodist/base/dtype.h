// Element types of tensors, shared by graphs, slices on the wire and checkpoints.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace autodist {

enum class DType : std::uint8_t {
  kFloat32 = 1,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
  kComplex64,
  kComplex128,
};

// Bytes of one element.
std::size_t size_of(DType dtype);
// "f32", "i64", …: the names in text forms.
std::string_view name_of(DType dtype);
bool is_floating(DType dtype);

}  // namespace autodist
