// Gloo where this build has no headers of it: a process that has its backend of c10d otherwise, as
// Python with torch.distributed does, says how one is made.
//
// Opt-in: includes torch.

#pragma once

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>

namespace autodist::comm {

// Connects a rank with the others over the store. `where`: the rank's own address for Gloo,
// libtorch's word for its device ("cuda:1") for NCCL. `limit`: of every collective. It is called on
// the thread that makes the collectives, and uses the store there and during the call alone.
using BackendMaker = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>&, int rank, int size, const std::string& where,
    std::chrono::milliseconds limit)>;

// Before the process has a job. From then on has_gloo() says that there is one.
void set_gloo_maker(BackendMaker maker);

}  // namespace autodist::comm
