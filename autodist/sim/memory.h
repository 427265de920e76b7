// What a rank needs in memory, and whether it is there.

#pragma once

#include <cstddef>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/program/program.h"
#include "autodist/sim/cost_model.h"

namespace autodist::sim {

struct MemoryUse {
  Bytes parameters;   // with buffers and constants
  Bytes gradients;    // on a GPU with the buffers of a library's largest all-reduce
  Bytes activations;  // and inputs, at their peak
  Bytes optimizer;    // state, where this rank updates
  // Of a GPU: CUDA's context (sim/device_table.h), and what its allocator holds and cannot use.
  Bytes overhead;
  // Copies of what it owns, contributions that wait to be summed, results that wait to be
  // installed, and what its windows hold.
  Bytes communication;
  bool on_device = false;  // communication lies in the host's memory then
  Bytes capacity;          // of the device; 0: unknown

  [[nodiscard]] Bytes device() const {
    const Bytes own = parameters + gradients + activations + optimizer + overhead;
    return on_device ? own : own + communication;
  }
  [[nodiscard]] bool fits() const { return capacity == Bytes{0} || device() <= capacity; }
  [[nodiscard]] Bytes missing() const { return fits() ? Bytes{} : device() - capacity; }
};

// By rank.
std::vector<MemoryUse> memory_of(const program::Program& program, const CostModel& costs);

bool fits(const std::vector<MemoryUse>& uses);
// The rank whose device holds most, the first of equals. REQUIRES: there is one.
std::size_t fullest_rank(const std::vector<MemoryUse>& uses);
// What that device holds; 0 of no ranks.
Bytes peak_bytes(const std::vector<MemoryUse>& uses);
// By how much it does not fit where it fits least; 0: it fits.
Bytes missing_bytes(const std::vector<MemoryUse>& uses);

// What a GPU of `capacity` has for tensors beside what a process holds of it anyway (`context`, as
// context_bytes() says) and what its allocator cannot use.
Bytes room_for_tensors(Bytes capacity, Bytes context);

}  // namespace autodist::sim
