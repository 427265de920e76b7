#include "autodist/exec/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

template <typename T>
bool finite(const std::vector<T>& values, DType dtype) {
  return all_finite(reinterpret_cast<const std::byte*>(values.data()), dtype,
                    static_cast<std::int64_t>(values.size()));
}

template <typename T>
void expect_finds_each(DType dtype) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  std::vector<T> values(10'000, -std::numeric_limits<T>::max());
  EXPECT_TRUE(finite(values, dtype));
  for (const T bad : {kInfinity, -kInfinity, std::numeric_limits<T>::quiet_NaN()}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, values.size() - 1}) {
      std::vector<T> spoiled = values;
      spoiled[at] = bad;
      EXPECT_FALSE(finite(spoiled, dtype)) << bad << " at " << at;
    }
  }
}

TEST(AllFinite, FindsInfinitiesAndNansAnywhere) {
  expect_finds_each<float>(DType::kFloat32);
  expect_finds_each<double>(DType::kFloat64);
}

TEST(AllFinite, KnowsHalves) {
  EXPECT_TRUE(finite<std::uint16_t>({0x7BFF, 0xFBFF, 0}, DType::kFloat16));  // ±65504
  EXPECT_FALSE(finite<std::uint16_t>({0, 0xFC00}, DType::kFloat16));         // -inf
  EXPECT_TRUE(finite<std::uint16_t>({0x7F7F}, DType::kBFloat16));
  EXPECT_FALSE(finite<std::uint16_t>({0x7FC0}, DType::kBFloat16));  // NaN
}

TEST(AllFinite, TakesIntegersAndNothing) {
  EXPECT_TRUE(finite<std::int64_t>({-1}, DType::kInt64));
  EXPECT_TRUE(finite<float>({}, DType::kFloat32));
}

TEST(AllFinite, RefusesUnknownWishes) {
  EXPECT_EQ(on_nonfinite_from_name("ignore"), OnNonFinite::kIgnore);
  EXPECT_THROW(on_nonfinite_from_name("explode"), Error);
}

}  // namespace
}  // namespace autodist::exec
