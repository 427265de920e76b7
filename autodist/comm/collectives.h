// Library collectives behind plain pointers: c10d/ implements them with Gloo (NCCL on CUDA).

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "autodist/base/dtype.h"
#include "autodist/base/units.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

class Collectives {
 public:
  virtual ~Collectives() = default;
  // Sums `count` elements over all ranks, in place. Blocks; throws Error(kPeersLost) at the time
  // limit.
  virtual void all_reduce(void* data, std::size_t count, DType dtype) = 0;
  // "gloo over 127.0.0.1", for messages and --version.
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace autodist::comm
