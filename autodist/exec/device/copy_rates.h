// How fast a device and the host's pinned memory copy to each other.

#pragma once

#include <string>

#include "autodist/base/units.h"

namespace autodist::exec {

// Bytes per second; of both directions at once, their sum.
struct CopyRates {
  double to_device = 0;
  double to_host = 0;
  double both = 0;
};

// The best of several copies of `size`. `device`: libtorch's word, "cuda:1"; no CPU.
CopyRates measure_copies(const std::string& device, Bytes size);

}  // namespace autodist::exec
