// NCCL where this build has no headers of it: as given_gloo.h, with Python's torch.distributed.
//
// Opt-in: includes torch.

#pragma once

#include <functional>
#include <string>

#include "autodist/comm/c10d/given_gloo.h"

namespace autodist::comm {

// `name`: from libtorch's word for a device to its name in the world (its UUID). Before the process
// has a job; from then on has_nccl() says that there is NCCL.
void set_nccl_maker(BackendMaker maker, std::function<std::string(const std::string&)> name);

}  // namespace autodist::comm
