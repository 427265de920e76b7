// A process that is no rank starts a job's chief, and starts it again when the job has lost a rank:
// above the chief of `autodist train`, and of any program that starts its ranks itself.

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "autodist/app/cli/program.h"
#include "autodist/cluster/cluster.h"

namespace autodist::app {

// What a process that supervises a job is told.
struct Supervised {
  std::uint32_t restarts = 0;                   // in a row that get no further
  double grace = 0;                             // seconds after a signal to end; 0: without end
  std::optional<std::uint32_t> min_ranks = {};  // nothing: as many as at the beginning
  std::string faults = {};                      // a FaultPlan; empty: none
  bool standby = false;                         // one is kept ready
};

// --restarts, --standby, --min-ranks and --grace; and --faults, which autodist chaos says.
void declare_supervised(CLI::App& verb, Supervised& supervised);

// Throws Error(kUsage) where the job has fewer ranks than are to be left after a loss, and for a
// standby without restarts.
void check_supervised(const Supervised& supervised, std::size_t ranks);

// Of `train` and `supervise`, where nothing is said.
constexpr std::uint32_t kRestarts = 3;

// A program that is its job's rank 0 and starts the others.
struct ChiefProgram {
  // The process that calls it, a child, becomes the program, which goes on from `checkpoint`, or
  // begins as it does by itself where that is empty. Returns an exit code where it cannot be
  // started, which is said.
  std::function<int(const std::string& checkpoint)> become;
  // The folder of checkpoints that it was told; empty for none, and where it says one itself.
  std::string checkpoints;
  std::function<cluster::Cluster()> cluster;  // the job's; asked when a machine is missing
  bool cpu_only = false;
  // The command that goes on from a checkpoint, for people. Not asked without `checkpoints`.
  std::function<std::string(const std::string& checkpoint)> going_on;
};

// Until the job is over, and returns its exit code. The chief is a child, which ends in order, as
// after Ctrl-C, when this process is gone.
int supervise(const ChiefProgram& program, const Supervised& request);

}  // namespace autodist::app
