// Runs a program to its end and keeps what it wrote; and what starting a child takes.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "autodist/base/file.h"

namespace autodist::job {

// Between this process and a child, which inherits neither end by itself. `whom` begins messages.
struct Pipe {
  Descriptor read_end;
  Descriptor write_end;

  // Throws Error(kEnvironment).
  explicit Pipe(const std::string& whom);
  // While this process holds both ends, so that no reader who ends breaks the pipe. Blocks never:
  // throws Error(kEnvironment) where the bytes do not fit, which takes 64 KiB or so.
  void fill(const std::string& whom, const std::string& bytes) const;
};

// fork(), which throws Error(kEnvironment) where it cannot.
pid_t forked(const std::string& whom);

// The first descriptors of a child are given to the program that it becomes. What it holds besides
// is moved to this number or above, where nothing is put in its place.
inline constexpr int kFirstFreeDescriptor = 10;

struct Finished {
  int exit_code = 0;  // kBySignal + signal when it was killed
  std::string output;
};

// arguments[0] is the program, a path or a name on PATH, which reads `input` (at most what a pipe
// holds, 64 KiB). The output is what it writes on standard output, and `with_errors` also on
// standard error, which otherwise goes where ours goes. The child dies with us. Throws
// Error(kEnvironment) when it cannot be started, and for an input that is too large.
Finished run_to_end(const std::vector<std::string>& arguments, const std::string& input = "",
                    bool with_errors = false);

// The program's last line of output; "no answer" where it wrote none.
std::string last_words(const Finished& finished);

// For exec: where each word begins, and a null at the end. `words` outlives it.
std::vector<char*> argv_of(std::vector<std::string>& words);

}  // namespace autodist::job
