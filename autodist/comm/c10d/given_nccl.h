// NCCL where this build has no headers of it: Python's torch.distributed makes its backend.
//
// Opt-in: includes torch.

#pragma once

#include <functional>
#include <string>

#include "autodist/comm/c10d/given_backend.h"

namespace autodist::comm {

// `maker` gets libtorch's word for the rank's device ("cuda:1") in the place of an address. `name`
// gives that device's name in the world (its UUID). Before the process has a job; from then on
// has_nccl() says that there is NCCL.
void set_nccl_maker(BackendMaker maker, std::function<std::string(const std::string&)> name);

}  // namespace autodist::comm
