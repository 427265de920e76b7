// Where the two generations of libtorch that we build against (1.13 and 2.x) differ.
//
// Included by .cc files and opt-in headers of torch rooms only.

#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKey.h>
#include <torch/version.h>

#define AUTODIST_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||           \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace autodist::capture {

// Below every autograd key, above every backend, reserved for code outside of libtorch; there in
// both generations.
constexpr c10::DispatchKey kCaptureKey = c10::DispatchKey::Fake;

inline bool is_symbolic_integer_type(c10::TypeKind kind) {
  return kind == c10::TypeKind::SymIntType;
}

}  // namespace autodist::capture
