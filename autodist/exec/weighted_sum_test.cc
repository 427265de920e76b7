#include "autodist/exec/weighted_sum.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "autodist/capture/torch_types.h"

namespace autodist::exec {
namespace {

// The distance from 1 to the next number.
double step_at_one(torch::ScalarType type) {
  if (type == torch::kFloat64) return 0x1p-52;
  if (type == torch::kFloat16) return 0x1p-10;
  return type == torch::kBFloat16 ? 0x1p-7 : 0x1p-23;
}

const std::byte* bytes_of(const torch::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.data_ptr());
}

class WeightedSum : public ::testing::TestWithParam<torch::ScalarType> {};

TEST_P(WeightedSum, IsTheSumThatLibtorchComputesInDouble) {
  for (const std::int64_t count : {1, 7, 2048, 5000}) {
    std::vector<Term> terms;
    std::vector<torch::Tensor> tensors;
    torch::Tensor expected = torch::zeros({count}, torch::kFloat64);
    for (const double weight : {0.5, 0.25, 0.25}) {
      tensors.push_back(torch::randn({count}).to(GetParam()));
      terms.push_back({bytes_of(tensors.back()), weight});
      expected += tensors.back().to(torch::kFloat64) * weight;
    }
    torch::Tensor sum = torch::empty({count}, GetParam());
    weighted_sum(terms, dtype_of(GetParam()), count, static_cast<std::byte*>(sum.data_ptr()));
    const double tolerance = step_at_one(GetParam()) * 4;
    EXPECT_TRUE(torch::allclose(sum.to(torch::kFloat64), expected, tolerance, tolerance)) << count;
  }
}

TEST_P(WeightedSum, OfNothingIsZero) {
  torch::Tensor sum = torch::ones({3000}, GetParam());
  weighted_sum({}, dtype_of(GetParam()), 3000, static_cast<std::byte*>(sum.data_ptr()));
  EXPECT_EQ(sum.abs().max().item<double>(), 0);
}

TEST_P(WeightedSum, DoesNotDependOnWhereASliceIsCut) {
  const torch::Tensor a = torch::randn({4100}).to(GetParam());
  const torch::Tensor b = torch::randn({4100}).to(GetParam());
  const auto width = static_cast<std::int64_t>(a.element_size());
  torch::Tensor whole = torch::empty_like(a);
  torch::Tensor cut = torch::empty_like(a);
  const auto sum = [&](std::int64_t begin, std::int64_t end, torch::Tensor& out) {
    weighted_sum({{bytes_of(a) + begin * width, 1.0 / 3}, {bytes_of(b) + begin * width, 2.0 / 3}},
                 dtype_of(GetParam()), end - begin,
                 static_cast<std::byte*>(out.data_ptr()) + begin * width);
  };
  sum(0, 4100, whole);
  sum(0, 13, cut);
  sum(13, 2999, cut);
  sum(2999, 4100, cut);
  EXPECT_TRUE(torch::equal(whole, cut));
}

TEST_P(WeightedSum, SquaresAreAddedInDouble) {
  const torch::Tensor a = torch::randn({1003}).to(GetParam());
  const double expected = a.to(torch::kFloat64).square().sum().item<double>();
  EXPECT_NEAR(sum_of_squares(bytes_of(a), dtype_of(GetParam()), 1003), expected, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightedSum,
                         ::testing::Values(torch::kFloat32, torch::kFloat64, torch::kFloat16,
                                           torch::kBFloat16));

}  // namespace
}  // namespace autodist::exec
