// From the light program to `autodist-torch` beside it.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

// `autodist-torch` takes this process's place, with these arguments, of which the second is a verb.
// Returns an exit code where it cannot be started, which is said.
int hand_over(std::vector<std::string> arguments);

}  // namespace autodist::app
