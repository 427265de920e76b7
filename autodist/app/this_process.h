// This process, for those parts of AutoDist that ask no system: the one place where the environment
// is read for a job, and from which a job prints.

#pragma once

#include <string>
#include <vector>

#include "autodist/base/environment.h"
#include "autodist/job/process_context.h"

namespace autodist::app {

// The process's own environment, as it is whenever it is asked; and all of it, as it is now.
Environment process_environment();
std::vector<std::string> process_variables();

// Whether a folder of PATH has a program of this name.
bool is_on_path(const std::string& program, const Environment& environment);

// "autodist: LINE" on standard error, whole.
void say_line(const std::string& line);

// What the process is now. It speaks on standard error; lines of other ranks are prefixed with
// "[rank N]".
job::ProcessContext this_process();

}  // namespace autodist::app
