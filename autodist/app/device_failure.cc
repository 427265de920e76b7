#include "autodist/app/device_failure.h"

#include <algorithm>
#include <initializer_list>

namespace autodist::app {
namespace {

bool has_any(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

}  // namespace

bool is_device_failure(const std::string& message) {
  const bool is_of_device =
      has_any(message, {"CUDA error", "CUDA driver error", "HIP error", "NCCL error", "NCCL Error",
                        "cuDNN error", "cusolver error", "cuFFT error"});
  const bool is_refused_each_time =
      has_any(message, {"no kernel image", "device-side assert", "invalid argument",
                        "invalid configuration argument", "invalid device ordinal",
                        "invalid device function", "_NOT_SUPPORTED", "_BAD_PARAM", "_INVALID_VALUE",
                        "_ARCH_MISMATCH", "invalid usage"});
  return is_of_device && !is_refused_each_time && !is_out_of_memory(message);
}

bool is_out_of_memory(const std::string& message) {
  return has_any(message, {"out of memory", "can't allocate memory", "no memory left",
                           "Cannot allocate memory", "_ALLOC_FAILED"});
}

}  // namespace autodist::app
