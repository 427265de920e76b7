#include "autodist/sim/factored.h"

#include <gtest/gtest.h>

namespace autodist::sim {
namespace {

Factored gradient(double saved, double multiply_all) {
  Factored factored;
  factored.saved = saved;
  factored.multiply_all = multiply_all;
  return factored;
}

// 20 bytes at a quarter of a second each take 5 s. The first gradient saves 8 of them for 2 s of
// work, so 12 remain; the second one byte per second of what is left of t: (12 - (t - 2)) / 4 = t.
TEST(LeastWithFactors, WeighsLinksAgainstProducts) {
  const std::vector<Factored> all{gradient(4, 4), gradient(0, 0), gradient(8, 2)};
  EXPECT_NEAR(least_with_factors(all, 20, 0.25, 0, 5), 2.8, 1e-9);
  EXPECT_EQ(least_with_factors(all, 20, 0.25, 4, 5), 4) << "no less than the rest needs";
  EXPECT_EQ(least_with_factors(all, 20, 0.25, 6, 5), 5);
  EXPECT_EQ(least_with_factors({gradient(0, 0)}, 20, 0.25, 0, 5), 5) << "nothing to save";
}

TEST(LeastWithFactors, TakesAllWhereProductsCostNothing) {
  EXPECT_NEAR(least_with_factors({gradient(8, 0), gradient(4, 0)}, 20, 0.25, 0, 5), 2, 1e-9);
}

}  // namespace
}  // namespace autodist::sim
