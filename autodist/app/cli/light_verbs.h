// The verbs that need no libtorch.

#pragma once

#include "autodist/app/cli/program.h"

namespace autodist::app {

Action declare_inspect(CLI::App& verb);
Action declare_place(CLI::App& verb);
Action declare_plan(CLI::App& verb);
Action declare_report(CLI::App& verb);
Action declare_run(CLI::App& verb);
Action declare_version(CLI::App& verb);

}  // namespace autodist::app
