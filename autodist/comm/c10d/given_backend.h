// Library collectives where this build has no headers of a library: a process that has a backend of
// c10d otherwise, as Python with torch.distributed does, says how one is made.
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

// Connects a rank with the others over the store: (store, rank, size, own address, limit of every
// collective). It is called on the thread that makes the collectives, and uses the store there and
// during the call alone.
using BackendMaker = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>&, int rank, int size, const std::string& address,
    std::chrono::milliseconds limit)>;

// Before the process has a job. From then on has_gloo() says that there is one.
void set_backend_maker(BackendMaker maker);

}  // namespace autodist::comm
