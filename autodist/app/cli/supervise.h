// `autodist train` as it is typed: a process that is no rank starts the chief, and starts it again
// when the job has lost a rank.

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

constexpr std::uint32_t kRestartsOfTrain = 3;

// `autodist train …`, from its name on: until the job is over, and returns its exit code. Where
// some launcher has started this process as a rank, or there are to be no restarts and no grace,
// the chief takes this process's place. Otherwise it is a child, which ends in order, as after
// Ctrl-C, when this process is gone. Says what goes wrong.
int train_supervised(const std::vector<std::string>& words);

}  // namespace autodist::app
