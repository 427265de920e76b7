// The verbs of the command line, as a table: what `--help` lists, and which of the two binaries
// does which. `autodist` starts in milliseconds because it does not link libtorch; what computes is
// done by `autodist-torch` beside it.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

enum class Binary { kLight, kTorch };

// What stands on standard output: an answer, as text or (--json) as one JSON object, or whatever a
// user's program prints.
enum class Says { kAnAnswer, kAProgram };

struct Verb {
  std::string name;
  std::string summary;
  std::string example;
  Binary binary;
  Says says = Says::kAnAnswer;
};

// In the order of help.
const std::vector<Verb>& verbs();

// nullptr for an unknown name.
const Verb* find_verb(const std::string& name);

}  // namespace autodist::app
