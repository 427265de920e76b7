// Library collectives on GPUs: NCCL through libtorch's c10d. nccl.cc is compiled where NCCL's and
// CUDA's headers lie beside the libtorch (pip's CUDA builds); with pip's torch 2 without them
// given_nccl.cc, for whoever makes NCCL's backend otherwise, as Python does (given_nccl.h); with
// 1.13 and with the system's libtorch no_nccl.cc.

#pragma once

#include <memory>
#include <string>

#include "autodist/base/units.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// Whether this program has NCCL.
bool has_nccl();

// The GPU's own name in the world (its UUID); empty for another device, and where there is no NCCL.
std::string nccl_gpu(const std::string& device);

// As make_gloo() (gloo.h), for memory of the device; NCCL chooses its network interfaces by itself
// (NCCL_SOCKET_IFNAME). REQUIRES: nccl_gpu(device) is not empty, and differs from the other ranks'.
std::unique_ptr<Collectives> make_nccl(Transport& transport, const std::string& device,
                                       Seconds limit);

}  // namespace autodist::comm
