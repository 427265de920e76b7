#include "autodist/app/blas_kernels.h"

#include <gtest/gtest.h>

namespace autodist::app {
namespace {

TEST(BlasKernels, BetterOnesOnlyForThoseFromBeforeAvx) {
  const VectorUnits none;
  const VectorUnits avx2{true, false};
  const VectorUnits avx512{true, true};
  EXPECT_EQ(better_kernels("Prescott", avx512), "SkylakeX");
  EXPECT_EQ(better_kernels("Prescott", avx2), "Haswell");
  EXPECT_EQ(better_kernels("Barcelona", avx2), "Haswell");
  EXPECT_EQ(better_kernels("Prescott", none), "");
  for (const char* known : {"Haswell", "SkylakeX", "Zen", "Sandybridge", "ARMV8", ""}) {
    EXPECT_EQ(better_kernels(known, avx512), "") << known;
  }
}

TEST(BlasKernels, TheUsersChoiceStands) {
  const Environment chosen = [](const std::string& name) -> std::optional<std::string> {
    return name == kBlasKernels ? std::optional<std::string>("Haswell") : std::nullopt;
  };
  EXPECT_EQ(blas_kernels(chosen), "");
}

}  // namespace
}  // namespace autodist::app
