// Whether numbers are numbers: asked of every gradient before it leaves a rank.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "autodist/base/dtype.h"

namespace autodist::exec {

// What a step does with a loss or a gradient that is not finite.
enum class OnNonFinite : std::uint8_t {
  kStop,    // ends the run, naming it, before anything of it leaves the rank
  kIgnore,  // trains on
};

// "stop", "ignore". Throws Error(kUsage) for another name.
OnNonFinite on_nonfinite_from_name(const std::string& name,
                                   const std::string& option = "--on-nonfinite");

// No infinity and no NaN among `count` elements; true for integers. One pass at the speed of
// memory. REQUIRES: aligned for the type.
bool all_finite(const std::byte* data, DType dtype, std::int64_t count);

}  // namespace autodist::exec
