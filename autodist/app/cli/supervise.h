// `autodist train` as it is typed: a process that is no rank starts the chief, and starts it again
// when the job has lost a rank.

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace autodist::app {

// What a process that supervises a job is told.
struct Supervised {
  std::uint32_t restarts = 0;  // in a row that get no further
  double grace = 0;            // seconds after a signal to end; 0: without end
};

// --restarts and --grace.
void declare_supervised(CLI::App& verb, Supervised& supervised);

constexpr std::uint32_t kRestartsOfTrain = 3;

// Whether these words of a command ask for it: unless some launcher has started this process as a
// rank, or there are to be no restarts and nothing else to look after.
bool is_supervised(const std::vector<std::string>& words);

// Runs the command until the job is over, and returns its exit code. It dies with this process in
// order, as after Ctrl-C.
int supervise(const std::vector<std::string>& words);

}  // namespace autodist::app
