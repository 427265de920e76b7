#include "autodist/app/device_failure.h"

#include <algorithm>
#include <initializer_list>

#include "autodist/base/error.h"
#include "autodist/base/text.h"

namespace autodist::app {
namespace {

bool has_any(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

}  // namespace

Refused refused_by(const std::string& message) {
  if (has_any(message, {"out of memory", "can't allocate memory", "Cannot allocate memory",
                        "_ALLOC_FAILED"})) {
    return Refused::kMemory;
  }
  const bool is_of_device =
      has_any(message, {"CUDA error", "CUDA driver error", "HIP error", "NCCL error", "NCCL Error",
                        "cuDNN error", "cusolver error", "cuFFT error"});
  const bool is_refused_each_time =
      has_any(message, {"no kernel image", "device-side assert", "invalid argument",
                        "invalid configuration argument", "invalid device ordinal",
                        "invalid device function", "_NOT_SUPPORTED", "_BAD_PARAM", "_INVALID_VALUE",
                        "_ARCH_MISMATCH", "invalid usage"});
  return is_of_device && !is_refused_each_time ? Refused::kDevice : Refused::kModelAndData;
}

void fail_of_device(const std::string& who, const std::string& message) {
  if (refused_by(message) != Refused::kDevice) return;
  for (const std::string& line : split(message, '\n')) {
    if (refused_by(line) != Refused::kDevice) continue;
    fail(ErrorCode::kPeersLost, "{}: the device has failed: {}", who, line);
  }
}

}  // namespace autodist::app
