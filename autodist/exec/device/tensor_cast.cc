#include "autodist/exec/device/tensor_cast.h"

#include <limits>

#include "autodist/base/check.h"

namespace autodist::exec {
namespace {

// What is larger becomes the largest number, also what is infinite.
template <typename Half>
torch::Tensor cast_to(const torch::Tensor& gradient) {
  const auto largest = static_cast<double>(std::numeric_limits<Half>::max());
  return at::clamp(gradient, -largest, largest)
      .to(torch::kFloat)
      .to(c10::CppTypeToScalarType<Half>::value);
}

}  // namespace

torch::Tensor cast_elements(program::Codec codec, const torch::Tensor& gradient) {
  if (codec == program::Codec::kFp16) return cast_to<at::Half>(gradient);
  AD_CHECK(codec == program::Codec::kBf16) << traits_of(codec).name << " is no cast";
  return cast_to<at::BFloat16>(gradient);
}

}  // namespace autodist::exec
