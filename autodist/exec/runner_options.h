// How a rank runs its part of a Program, and what it is connected to.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/exchange.h"
#include "autodist/exec/finite.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/ir/graph.h"

namespace autodist::exec {

struct RunnerOptions {
  std::uint64_t job_seed = 0;
  std::uint64_t first_step = 0;  // above 0 after a checkpoint; equal at all ranks
  // digest_of_values() of the variables as all ranks got them, by variable: a tensor may have been
  // written to since. Empty: as they are now.
  std::vector<std::uint64_t> initial_values{};
  // A gate, a norm or a peer's goodbye that takes longer ends the run: Error(kTimeout).
  Seconds wait_limit{120};
  comm::ExchangeOptions exchange;
  const UserRules* user_rules = nullptr;  // outlives the runner
  bool trace = false;                     // keep rows for take_trace()
  std::int64_t trace_steps = 0;           // of the last so many steps; 0: of all
  // What an op of so many samples takes on a device that this machine does not have: beside
  // computing, the step sleeps for it, which takes no core.
  std::function<Seconds(const ir::Op&, std::int64_t samples)> device_time = {};
  OnNonFinite on_nonfinite = OnNonFinite::kStop;
  // Steps go the graph's way, whatever Booleans the host would read (ir::kGuardOp): for measuring.
  bool passes_guards = false;
};

// What the world around a rank gives it. All outlive the runner.
struct RunnerConnections {
  comm::Transport* transport = nullptr;      // may be null for a job of one rank
  comm::Collectives* collectives = nullptr;  // where the Program has library all-reduces
  const Clock* clock = nullptr;
};

}  // namespace autodist::exec
