// Runs a program to its end and keeps what it wrote.

#pragma once

#include <string>
#include <vector>

namespace autodist::job {

struct Finished {
  int exit_code = 0;  // 128 + signal when it was killed
  std::string output;
};

// arguments[0] is the program, a path or a name on PATH, which reads `input` (at most what a pipe
// holds, 64 KiB). The output is what it writes on standard output, and `with_errors` also on
// standard error, which otherwise goes where ours goes. The child dies with us. Throws
// Error(kEnvironment) when it cannot be started.
Finished run_to_end(const std::vector<std::string>& arguments, const std::string& input = "",
                    bool with_errors = false);

// For exec: where each word begins, and a null at the end. `words` outlives it.
std::vector<char*> argv_of(std::vector<std::string>& words);

}  // namespace autodist::job
