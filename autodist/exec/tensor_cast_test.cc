// Casts of whole tensors have the bits of the codec's.

#include "autodist/exec/device/tensor_cast.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/codec.h"
#include "autodist/exec/tensor_data.h"

namespace autodist::exec {
namespace {

using program::Codec;

// What rounds, ties, is subnormal, is too large, or nearly so.
torch::Tensor telling_values() {
  torch::manual_seed(3);
  const torch::Tensor random = torch::randn({4000}, torch::kDouble);
  const torch::Tensor scales = at::pow(2.0, torch::arange(-150, 130, torch::kDouble));
  const torch::Tensor spread = (random.view({-1, 1}) * scales.view({1, -1})).flatten();
  const torch::Tensor ties = (1 + torch::arange(4096, torch::kDouble) / 4096).view({-1, 1});
  const torch::Tensor exact =
      (ties * at::pow(2.0, torch::arange(-26, 18, torch::kDouble)).view({1, -1})).flatten();
  const double infinity = std::numeric_limits<double>::infinity();
  const torch::Tensor limits = torch::tensor(
      {0.0, -0.0, 65503.99, 65504.0, 65519.99, 65520.0, 1e6, 3.38e38, 3.3895e38, 3.4e38, infinity},
      torch::kDouble);
  return at::cat({spread, -spread, exact, -exact, limits, -limits});
}

TEST(CastOnDevice, HasTheBitsOfTheCodec) {
  for (const torch::ScalarType type : {torch::kFloat, torch::kDouble}) {
    const torch::Tensor values = telling_values().to(type);
    for (const program::CodecTraits& each : program::kCodecs) {
      if (each.unit != program::EncodedUnit::kElement) continue;
      const Codec codec = each.codec;
      const comm::Payload expected =
          encode({codec}, dtype_of(type), values.numel(), memory_of(values), /*residual=*/nullptr);
      const torch::Tensor cast = cast_elements(codec, values);
      ASSERT_EQ(byte_count(cast).value, static_cast<std::int64_t>(expected.size));
      EXPECT_EQ(std::memcmp(memory_of(cast), expected.data, expected.size), 0)
          << each.name << " of " << type;
    }
  }
}

TEST(CastOnDevice, KeepsShapeAndNaN) {
  const torch::Tensor values = torch::full({2, 3}, std::numeric_limits<float>::quiet_NaN());
  const torch::Tensor cast = cast_elements(Codec::kBf16, values);
  EXPECT_EQ(cast.sizes(), values.sizes());
  EXPECT_TRUE(cast.isnan().all().item<bool>());
}

TEST(CastOnDevice, IsOfCastsAlone) {
  EXPECT_THROW(cast_elements(Codec::kTopK, torch::ones({2})), InternalError);
}

}  // namespace
}  // namespace autodist::exec
