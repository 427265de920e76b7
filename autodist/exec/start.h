// Version 0: every rank starts from the chief's values, whatever its own generator made of the
// model, also after loading a checkpoint.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <vector>

#include "autodist/base/units.h"
#include "autodist/capture/bindings.h"
#include "autodist/comm/transport.h"
#include "autodist/ir/graph.h"

namespace autodist::exec {

// What the chief's values are sent of: variables, buffers and named constants.
std::vector<NamedTensor> initial_tensors(const ir::Graph& graph, const capture::Bindings& bindings);

// Copies the chief's (rank 0's) values of initial_tensors() into every rank's, then compares one
// digest of all values. By all ranks, before any Runner uses the transport. Throws
// Error(kPeersLost) naming who said nothing within `limit`, Error(kUsage) where the values differ
// nevertheless.
void broadcast_initial(comm::Transport& transport, const std::vector<NamedTensor>& tensors,
                       Seconds limit);
void broadcast_initial(comm::Transport& transport, const ir::Graph& graph,
                       const capture::Bindings& bindings, Seconds limit);

}  // namespace autodist::exec
