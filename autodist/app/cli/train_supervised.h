// `autodist train` as it is typed: a process that is no rank starts the chief, and starts it again
// when the job has lost a rank.

#pragma once

#include <string>
#include <vector>

namespace autodist::app {

// `autodist train …`, from its name on: until the job is over, and returns its exit code. Where
// some launcher has started this process as a rank, or there are to be no restarts and no grace,
// the chief takes this process's place. Says what goes wrong.
int train_supervised(const std::vector<std::string>& words);

}  // namespace autodist::app
