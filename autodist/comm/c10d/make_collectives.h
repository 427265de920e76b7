// The library that sums for a rank's device: NCCL where every rank computes on a GPU of its own and
// this program has NCCL, else Gloo, through the host.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "autodist/base/units.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

enum class CollectiveLibrary : std::uint8_t { kNone, kGloo, kNccl };

// Which one there is for all ranks' devices, at every rank the same. `device`: libtorch's word for
// this rank's, "cpu" or "cuda:1". All ranks call it at the same point; throws as all_gather()
// (agreement.h).
CollectiveLibrary library_for(Transport& transport, const std::string& device, Seconds limit);

// All ranks call it at the same point; what holds for make_gloo() (gloo.h) holds here.
std::unique_ptr<Collectives> make_collectives(Transport& transport, const std::string& own_address,
                                              const std::string& device, Seconds limit);

// Why NCCL cannot sum for a rank on this GPU, and what to install, as one line; "" where this
// program has NCCL, and on a CPU.
std::string why_through_host(const std::string& device);

}  // namespace autodist::comm
