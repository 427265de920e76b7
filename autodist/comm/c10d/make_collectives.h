// The library that sums for a rank's device: NCCL where every rank computes on a GPU of its own and
// this build has NCCL, else Gloo, through the host.

#pragma once

#include <memory>
#include <string>

#include "autodist/base/units.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// `device`: libtorch's word for this rank's, "cpu" or "cuda:1". All ranks call it at the same
// point; what holds for make_gloo() (gloo.h) holds here.
std::unique_ptr<Collectives> make_collectives(Transport& transport, const std::string& own_address,
                                              const std::string& device, Seconds limit);

}  // namespace autodist::comm
