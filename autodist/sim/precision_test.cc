#include "autodist/sim/precision.h"

#include <gtest/gtest.h>

#include <string>

#include "autodist/base/error.h"
#include "autodist/sim/cost_model.h"

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
  return FittedTimes(find_device(device, "test"), precision).of(ir::Graph{}, op, 1);
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

// Nobody writes it: with a precision it takes nothing, and in the rule of thumb what a view takes.
TEST(FittedTimes, WhatOnlyAllocatesTakesNothing) {
  for (const char* name : {"aten::empty", "aten::empty_like", "aten::new_empty_strided"}) {
    const ir::Op op = op_of(name, 0, 1'000'000'000);
    EXPECT_EQ(bytes_moved(op, 1), 0) << name;
    EXPECT_EQ(time_of("A100", Precision::kTf32, op), Seconds{}) << name;
    EXPECT_EQ(roofline(op, 1, 19.5, 1555e9), roofline(op_of("aten::view", 0, 0), 1, 19.5, 1555e9))
        << name;
  }
  const ir::Op zeros = op_of("aten::zeros_like", 0, 1'000'000'000);
  EXPECT_EQ(bytes_moved(zeros, 1), 1e9);
  EXPECT_GT(time_of("A100", Precision::kTf32, zeros), Seconds(0.9e-3)) << "these are written";
}

// In float32 alone, and not with strides or other kernels.
TEST(FittedTimes, ConvolutionsOfThreeByThreeTakeFewerMultiplications) {
  ir::Graph graph;
  const auto weights_of = [&](std::int64_t kernel) {
    ir::Value weight;
    weight.type.sizes = {{0, 64}, {0, 64}, {0, kernel}, {0, kernel}};
    graph.values.push_back(weight);
    return ir::ValueId(graph.values.size() - 1);
  };
  const auto time_of_convolution = [&](ir::ValueId weight, std::int64_t stride, std::int64_t groups,
                                       Precision precision) {
    const std::vector<ir::Affine> strides{{0, stride}, {0, stride}};
    const std::vector<ir::Affine> ones{{0, 1}, {0, 1}};
    ir::Op op = op_of("aten::convolution", 1'000'000'000'000, 1);
    op.arguments = {weight, weight, ir::None{},           strides, ones, ones,
                    false,  ones,   ir::Affine{0, groups}};
    return FittedTimes(find_device("V100", "test"), precision).of(graph, op, 1).value;
  };
  const ir::ValueId three = weights_of(3);
  const ir::ValueId five = weights_of(5);
  const double plain = time_of_convolution(five, 1, 1, Precision::kFp32);
  EXPECT_NEAR(plain / time_of_convolution(three, 1, 1, Precision::kFp32), 2.7, 0.01);
  EXPECT_EQ(time_of_convolution(three, 2, 1, Precision::kFp32), plain);
  EXPECT_EQ(time_of_convolution(three, 1, 64, Precision::kFp32), plain);
  EXPECT_EQ(time_of_convolution(three, 1, 1, Precision::kFp16),
            time_of_convolution(five, 1, 1, Precision::kFp16));
}

// A library that may use matrix units need not: on many cards TF32 has the peak of float32.
TEST(FittedTimes, NoOpTakesLongerInALowerPrecision) {
  ir::Graph graph;
  ir::Value weight;
  weight.type.sizes = {{0, 64}, {0, 64}, {0, 3}, {0, 3}};
  graph.values.push_back(weight);
  const ir::ValueId three(0);
  const std::vector<ir::Affine> ones{{0, 1}, {0, 1}};
  ir::Op convolution = op_of("aten::convolution", 1'000'000'000'000, 1);
  convolution.arguments = {three, three, ir::None{},      ones, ones, ones,
                           false, ones,  ir::Affine{0, 1}};
  for (const DeviceRow& device : device_table()) {
    if (device.computes_on != cluster::DeviceKind::kGpu) continue;
    for (const ir::Op& op : {op_of("aten::mm", 1'000'000'000'000, 1), convolution,
                             op_of("aten::relu", 1, 1'000'000'000)}) {
      const Seconds fp32 = FittedTimes(device, Precision::kFp32).of(graph, op, 1);
      if (device.tf32_tflops > 0) {
        EXPECT_LE(FittedTimes(device, Precision::kTf32).of(graph, op, 1), fp32)
            << device.kind << " " << op.name;
      }
      if (device.half_tflops > 0) {
        EXPECT_LE(FittedTimes(device, Precision::kFp16).of(graph, op, 1), fp32)
            << device.kind << " " << op.name;
      }
    }
  }
}

TEST(FittedTimes, OfACardThatTheTableDoesNotHaveAreByItsRates) {
  cluster::DeviceFigures figures;
  figures.kind = "Card X";
  figures.tflops = 10;
  figures.memory_bandwidth_bytes_per_s = 1e12;
  EXPECT_NO_THROW(FittedTimes(row_of(figures), Precision::kFp32));
  EXPECT_THROW(FittedTimes(row_of(figures), Precision::kBf16), Error);
  figures.half_tflops = 100;
  const FittedTimes fitted(row_of(figures), Precision::kBf16);
  const ir::Op product = op_of("aten::mm", 85'000'000'000'000, 1);
  EXPECT_NEAR(fitted.of(ir::Graph{}, product, 1).value, 1, 0.01);
  EXPECT_NE(fitted.said().find("Card X in bf16"), std::string::npos);
  EXPECT_NE(fitted.said().find("none on this card"), std::string::npos);
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
            "--dtype bf16: V100 has no matrix units for it; fp32 or fp16 expected. Of a card that "
            "has some, say so: `devices: {half_tflops: …}` in the cluster file.");
  EXPECT_EQ(refusal("P100", Precision::kTf32).find("--dtype tf32: P100 has no matrix units"), 0U);
  EXPECT_EQ(refusal("V100", Precision::kFp16), "accepted");
}

}  // namespace
}  // namespace autodist::sim
