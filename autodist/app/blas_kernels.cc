#include "autodist/app/blas_kernels.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "autodist/app/libtorch.h"
#include "autodist/app/this_process.h"

namespace autodist::app {

VectorUnits vector_units_of_this_cpu() {
  VectorUnits units;
#ifdef __x86_64__
  units.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  units.avx512 = units.avx2 && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return units;
}

std::string blas_kernels(const Environment& environment) {
  if (libtorch_of_build().brings_blas() || environment(kBlasKernels)) return "";
  void* const library = ::dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  using NameOfCore = char* (*)();
  const auto name = reinterpret_cast<NameOfCore>(::dlsym(library, "openblas_get_corename"));
  return name == nullptr ? "" : name();  // stays loaded: its threads may run
}

std::string better_kernels(const std::string& kernels, const VectorUnits& cpu) {
  // Those of OpenBLAS 0.3 for x86 CPUs without AVX.
  static constexpr std::array<std::string_view, 15> kBeforeAvx{
      "Katmai", "Coppermine", "Northwood",    "Prescott",  "Banias",
      "Core2",  "Penryn",     "Dunnington",   "Nehalem",   "Atom",
      "Athlon", "Opteron",    "Opteron_SSE3", "Barcelona", "Nano"};
  const bool old = std::find(kBeforeAvx.begin(), kBeforeAvx.end(), kernels) != kBeforeAvx.end();
  if (!old || !cpu.avx2) return "";
  return cpu.avx512 ? "SkylakeX" : "Haswell";
}

bool choose_blas_kernels() {
  const std::string better =
      better_kernels(blas_kernels(process_environment()), vector_units_of_this_cpu());
  if (better.empty()) return false;
  ::setenv(kBlasKernels, better.c_str(), 1);
  return true;
}

}  // namespace autodist::app
