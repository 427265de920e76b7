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

// A row per type, in the order of DType.
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

constexpr std::size_t index_of(DType dtype) {
  return static_cast<std::size_t>(dtype) - static_cast<std::size_t>(DType::kFloat32);
}
constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (index_of(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

const Row& row_of(DType dtype) {
  AD_CHECK(index_of(dtype) < kRows.size()) << "dtype " << static_cast<int>(dtype);
  return kRows[index_of(dtype)];
}

}  // namespace

std::size_t size_of(DType dtype) { return row_of(dtype).size; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

}  // namespace autodist
