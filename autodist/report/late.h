// Which slices delayed the step, and where they spent their time: from a trace of all ranks.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/program/trace.h"

namespace autodist::report {

// A slice that was the last one that a gate waited for: what that cost in all steps and at all
// ranks, and where its way from the contribution to the installation took how long. The parts are
// means per wait; on the way of a slice the last contribution counts, for all have to be in.
struct LateSlice {
  program::SliceId slice;
  std::string name;  // of the slice's first shard
  std::int64_t waits = 0;
  Seconds waited;              // of all gates together
  Seconds contribution_queue;  // at the member whose contribution was last
  Seconds contribution_wire;
  Seconds owner;  // from the last contribution to the end of the merge
  Seconds result_queue;
  Seconds result_wire;
  Seconds install;  // from the arrival to the end of the installation
};

// By what they cost, the dearest first. A gate whose slices are not in the trace is passed over.
std::vector<LateSlice> late_slices(const program::Trace& trace);

// All gates' waiting, also that of those that were passed over.
Seconds waiting(const program::Trace& trace);

// A table of the first `most`, 0 for all.
std::string late_table(const program::Trace& trace, std::size_t most);
std::string late_json(const program::Trace& trace, std::size_t most);

}  // namespace autodist::report
