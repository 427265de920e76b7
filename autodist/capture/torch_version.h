// Where the two generations of libtorch that we build against (1.13 and 2.x) differ.
//
// Private to capture.

#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <string_view>
#include <type_traits>

#include "autodist/capture/training_step.h"

namespace autodist::capture {

// Below every autograd key, above every backend, reserved for code outside of libtorch; there in
// both generations.
constexpr c10::DispatchKey kCaptureKey = c10::DispatchKey::Fake;

// What libtorch carries per thread and hands on to autograd's threads has a kind. Code outside of
// libtorch may make one of its own where it is a class; where it is an enumeration, this one is not
// used by libtorch itself outside of its tests.
template <typename Kind = c10::DebugInfoKind>
Kind recorder_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::TEST_INFO_2;
  } else {
    static constexpr std::string_view kName = "autodist";
    return Kind(&kName);
  }
}

}  // namespace autodist::capture
