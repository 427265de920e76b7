#include "autodist/capture/torch_types.h"

#include <array>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 12> kTypes = {{
    {DType::kFloat32, at::kFloat},
    {DType::kFloat64, at::kDouble},
    {DType::kFloat16, at::kHalf},
    {DType::kBFloat16, at::kBFloat16},
    {DType::kInt8, at::kChar},
    {DType::kUInt8, at::kByte},
    {DType::kInt16, at::kShort},
    {DType::kInt32, at::kInt},
    {DType::kInt64, at::kLong},
    {DType::kBool, at::kBool},
    {DType::kComplex64, at::kComplexFloat},
    {DType::kComplex128, at::kComplexDouble},
}};

}  // namespace

torch::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  AD_CHECK(false) << "no libtorch type for " << name_of(dtype);
  return at::kFloat;
}

DType dtype_of(torch::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  fail(ErrorCode::kUsage,
       "tensor: element type {} is not supported. Convert it, to float or int64, say.",
       c10::toString(type));
}

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", name_of(dtype_of(tensor.scalar_type())),
                     fmt::join(tensor.sizes().vec(), ", "));
}

}  // namespace autodist
