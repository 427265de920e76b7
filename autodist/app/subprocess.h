// Runs a program to its end and keeps what it wrote on standard output.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

struct Finished {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string output;
};

// arguments[0] is the program's path. Standard error goes where ours goes; the child dies with us.
// Throws Error(kEnvironment) when it cannot be started.
Finished run_to_end(const std::vector<std::string>& arguments);

}  // namespace autodist::app
