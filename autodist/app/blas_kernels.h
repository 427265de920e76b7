// Which kernels OpenBLAS computes with on this CPU.
//
// OpenBLAS chooses by the CPU's model number, when it is loaded. A CPU that is newer than the
// library gets the kernels of the oldest one, which know no AVX: Debian 12's multiplies matrices at
// a quarter of the rate on a 2023 Xeon. OPENBLAS_CORETYPE names others, and nothing checks whether
// the CPU has their instructions.

#pragma once

#include <string>

#include "autodist/base/environment.h"

namespace autodist::app {

inline constexpr const char* kBlasKernels = "OPENBLAS_CORETYPE";

struct VectorUnits {
  bool avx2 = false;    // with FMA
  bool avx512 = false;  // F, CD, BW, DQ and VL
};
VectorUnits vector_units_of_this_cpu();

// What OpenBLAS would choose here ("Prescott"), without the variable; empty where it is not
// installed, not what libtorch computes with, does not say, or was told by the variable.
std::string blas_kernels(const Environment& environment);

// Kernels that the CPU can run in the place of `kernels`, where these are from before AVX; empty:
// `kernels` are all right.
std::string better_kernels(const std::string& kernels, const VectorUnits& cpu);

// Sets the variable in this process's environment, for programs that it turns into, where there are
// better kernels and the user has not chosen. Returns whether it did.
bool choose_blas_kernels();

}  // namespace autodist::app
