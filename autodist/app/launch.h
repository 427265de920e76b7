// Starts the other ranks of a job on this machine, and never leaves one behind.

#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "autodist/app/job.h"
#include "autodist/base/units.h"

namespace autodist::app {

// The program of this process and its arguments, as it was started.
struct CommandLine {
  std::string program;
  std::vector<std::string> arguments;  // arguments[0] is the name
};
CommandLine own_command_line();

// Ranks first, first + 1, … as child processes. What they write on standard output or standard
// error is handed, line by line, to `output` (from threads of this object). A child dies with its
// parent, also when the parent is killed.
class LocalRanks {
 public:
  using Output = std::function<void(std::uint32_t rank, const std::string& line)>;

  // `job` gives size, addresses and key; rank is overwritten. Throws Error(kEnvironment).
  LocalRanks(const CommandLine& command, std::uint32_t first, std::uint32_t count,
             const JobPlace& job, Output output);
  // Those that still run get SIGTERM, after two seconds SIGKILL.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  // The first rank that ended badly: "rank 1 (pid 4711) was killed by signal 9". Does not block.
  std::optional<std::string> failure();

  // Waits for all to end. Throws Error(kPeersLost) with failure(), Error(kTimeout) naming who still
  // runs.
  void wait(Seconds limit);

 private:
  struct Child {
    std::uint32_t rank = 0;
    pid_t pid = 0;
    bool ended = false;
    int status = 0;
  };

  void start(const CommandLine& command, const JobPlace& job);
  void reap();

  std::vector<Child> children_;
  std::vector<std::thread> readers_;
  Output output_;
};

}  // namespace autodist::app
