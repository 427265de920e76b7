// What a job is told of the process that it is in, and where it speaks to the user: it asks the
// system for neither. The front door makes it (app/this_process.h).

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autodist/job/launch.h"

namespace autodist::job {

struct ProcessContext {
  // The environment, "NAME=value": what is asked of it, and what ranks that this process starts
  // inherit.
  std::vector<std::string> variables;
  // A whole line for the user, without its end; from any thread.
  std::function<void(const std::string& line)> say;
  // Lines of ranks that this process started, where JobOptions::output is not set.
  StartedRanks::Output output;
};

}  // namespace autodist::job
