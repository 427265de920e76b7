// Where the two generations of libtorch that we build against (1.13 and 2.x) differ.
//
// Private to capture.

#pragma once

#include "autodist/capture/training_step.h"

namespace autodist::capture {

// Below every autograd key, above every backend, reserved for code outside of libtorch; there in
// both generations.
constexpr c10::DispatchKey kCaptureKey = c10::DispatchKey::Fake;

}  // namespace autodist::capture
