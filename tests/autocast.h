// Autocast of the CPU, for jobs of mixed precision.

#pragma once

#include <ATen/autocast_mode.h>
#include <torch/version.h>

namespace autodist::testing_jobs {

// torch.autocast("cpu", torch.bfloat16), which the C++ interface has in parts.
class AutocastToBf16 {
 public:
  AutocastToBf16() : before_(is_enabled()) {
    set_dtype(at::kBFloat16);
    set_enabled(true);
    at::autocast::increment_nesting();
  }
  ~AutocastToBf16() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set_enabled(before_);
  }
  AutocastToBf16(const AutocastToBf16&) = delete;
  AutocastToBf16& operator=(const AutocastToBf16&) = delete;

 private:
#if TORCH_VERSION_MAJOR < 2
  static bool is_enabled() { return at::autocast::is_cpu_enabled(); }
  static void set_enabled(bool enabled) { at::autocast::set_cpu_enabled(enabled); }
  static void set_dtype(at::ScalarType type) { at::autocast::set_autocast_cpu_dtype(type); }
#else
  static bool is_enabled() { return at::autocast::is_autocast_enabled(at::kCPU); }
  static void set_enabled(bool enabled) { at::autocast::set_autocast_enabled(at::kCPU, enabled); }
  static void set_dtype(at::ScalarType type) { at::autocast::set_autocast_dtype(at::kCPU, type); }
#endif

  bool before_;
};

}  // namespace autodist::testing_jobs
