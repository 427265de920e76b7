#include "autodist/base/dtype.h"

#include <array>

#include "autodist/base/check.h"

namespace autodist {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Row, 12> kRows{{
    {DType::kFloat32, "f32", 4},
    {DType::kFloat64, "f64", 8},
    {DType::kFloat16, "f16", 2},
    {DType::kBFloat16, "bf16", 2},
    {DType::kInt8, "i8", 1},
    {DType::kUInt8, "u8", 1},
    {DType::kInt16, "i16", 2},
    {DType::kInt32, "i32", 4},
    {DType::kInt64, "i64", 8},
    {DType::kBool, "bool", 1},
    {DType::kComplex64, "c64", 8},
    {DType::kComplex128, "c128", 16},
}};

const Row& row_of(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row;
  }
  AD_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return kRows[0];
}

}  // namespace

std::size_t size_of(DType dtype) { return row_of(dtype).size; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

}  // namespace autodist
