#include "autodist/sim/precision.h"

#include <gtest/gtest.h>

#include <string>

#include "autodist/base/error.h"

namespace autodist::sim {
namespace {

ir::Op op_of(const std::string& name, std::int64_t flops, std::int64_t bytes) {
  ir::Op op;
  op.name = name;
  op.flops = {0, flops};
  op.bytes_moved = {0, bytes};
  return op;
}

Seconds time_of(const char* device, Precision precision, const ir::Op& op) {
  return FittedTimes(find_device(device, "test"), precision).of(op, 1);
}

TEST(Precision, HasNamesThatReadBack) {
  for (const char* name : {"fp32", "tf32", "bf16", "fp16"}) {
    EXPECT_EQ(name_of(precision_from_name(name)), name);
  }
  try {
    precision_from_name("bf61");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Nearest: 'bf16'"), std::string::npos) << error.what();
  }
}

TEST(FittedTimes, ProductsRunOnMatrixUnits) {
  const ir::Op product = op_of("aten::mm", 1'000'000'000'000, 1);
  const double fp32 = time_of("A100", Precision::kFp32, product).value;
  const double tf32 = time_of("A100", Precision::kTf32, product).value;
  const double bf16 = time_of("A100", Precision::kBf16, product).value;
  EXPECT_NEAR(fp32 / tf32, 156 * 0.85 / (19.5 * 0.9), 0.1);
  EXPECT_NEAR(tf32 / bf16, 2, 0.01);
}

TEST(FittedTimes, OpsOfMemoryMoveHalfTheBytesInSixteenBits) {
  const ir::Op relu = op_of("aten::relu", 1, 1'000'000'000);
  EXPECT_NEAR(time_of("A100", Precision::kTf32, relu) / time_of("A100", Precision::kBf16, relu), 2,
              0.05);
  const ir::Op norm = op_of("aten::native_layer_norm", 1, 1'000'000'000);
  EXPECT_EQ(time_of("A100", Precision::kTf32, norm), time_of("A100", Precision::kBf16, norm))
      << "autocast computes it in float32";
  EXPECT_EQ(time_of("A100", Precision::kBf16, op_of("aten::view", 0, 0)), Seconds{});
}

TEST(FittedTimes, OfUnitsThatADeviceHasNotAreRefused) {
  const auto refusal = [](const char* device, Precision precision) {
    try {
      FittedTimes(find_device(device, "test"), precision);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal("V100", Precision::kBf16),
            "--dtype bf16: V100 has no matrix units for it; fp32 or fp16 expected");
  EXPECT_EQ(refusal("P100", Precision::kTf32),
            "--dtype tf32: P100 has no matrix units for it; fp32 expected");
  EXPECT_EQ(refusal("V100", Precision::kFp16), "accepted");
}

}  // namespace
}  // namespace autodist::sim
