#include "autodist/exec/factors.h"

#include <gtest/gtest.h>

#include "autodist/base/check.h"

namespace autodist::exec {
namespace {

class FactorsOf : public ::testing::TestWithParam<DType> {};

TEST_P(FactorsOf, MultiplyToTheWeightedSum) {
  const torch::ScalarType type = GetParam() == DType::kFloat64   ? torch::kFloat64
                                 : GetParam() == DType::kFloat32 ? torch::kFloat32
                                                                 : torch::kHalf;
  torch::manual_seed(1);
  const torch::Tensor left = torch::randn({6, 3}, torch::kFloat64).to(type);
  // A transposed view, as backward passes have them.
  const torch::Tensor right = torch::randn({4, 3}, torch::kFloat64).to(type).t();
  const torch::Tensor more_left = torch::randn({6, 2}, torch::kFloat64).to(type);
  const torch::Tensor more_right = torch::randn({2, 4}, torch::kFloat64).to(type);
  torch::Tensor out = torch::full({6, 4}, 77).to(type);
  multiply_factors(
      {{pack_factors(left, right, type), 0.25}, {pack_factors(more_left, more_right, type), 0.75}},
      {6, 4}, GetParam(), static_cast<std::byte*>(out.data_ptr()));
  const auto wide = [](const torch::Tensor& tensor) { return tensor.to(torch::kFloat64); };
  const torch::Tensor expected =
      0.25 * wide(left).mm(wide(right)) + 0.75 * wide(more_left).mm(wide(more_right));
  const double tolerance = type == torch::kFloat64 ? 1e-14 : type == torch::kFloat32 ? 1e-6 : 2e-3;
  EXPECT_TRUE(torch::allclose(wide(out), expected, tolerance, tolerance));
}

INSTANTIATE_TEST_SUITE_P(, FactorsOf,
                         ::testing::Values(DType::kFloat64, DType::kFloat32, DType::kFloat16));

TEST(Factors, TheSumOfNoFactorsIsZero) {
  torch::Tensor out = torch::full({2, 2}, 5.0);
  multiply_factors({}, {2, 2}, DType::kFloat32, static_cast<std::byte*>(out.data_ptr()));
  EXPECT_EQ(out.abs().max().item<float>(), 0);
}

TEST(Factors, FactorsOfAnotherShapeAreRefused) {
  torch::Tensor out = torch::zeros({3, 4});
  const comm::Payload other =
      pack_factors(torch::ones({3, 1}), torch::ones({1, 5}), torch::kFloat32);
  EXPECT_THROW(multiply_factors({{other, 1}}, {3, 4}, DType::kFloat32,
                                static_cast<std::byte*>(out.data_ptr())),
               InternalError);
}

}  // namespace
}  // namespace autodist::exec
