// Library collectives behind plain pointers: c10d/ implements them with Gloo, and NCCL for CUDA.

#pragma once

#include <cstddef>
#include <string>

#include "autodist/base/dtype.h"

namespace autodist::comm {

class Collectives {
 public:
  virtual ~Collectives() = default;
  // Sums `count` elements over all ranks, in place. Blocks; throws Error(kPeersLost) at the time
  // limit. On a device it may return before the sum is there, for what the caller's queue does
  // next: whoever waits for that watches the limit.
  virtual void all_reduce(void* data, std::size_t count, DType dtype) = 0;
  // A rank is lost: an all_reduce that waits for it, or begins later, throws soon instead of at the
  // limit, where the library can be told so. Any thread; never blocks.
  virtual void abort() {}
  // Whether `data` is memory of the rank's device, not of the host.
  [[nodiscard]] virtual bool is_on_device() const { return false; }
  // "gloo over 127.0.0.1, 2 ranks", for messages.
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace autodist::comm
