// The verbs that need no libtorch.

#pragma once

#include <string>
#include <vector>

#include "autodist/app/cli/program.h"

namespace autodist::app {

// The parts of `autodist dataset` among them.
const std::vector<std::string>& light_data_set_parts();

Action declare_chaos(CLI::App& verb);
Action declare_compare(CLI::App& verb);
Action declare_completion(CLI::App& verb);
Action declare_data_set(CLI::App& verb);
Action declare_doctor(CLI::App& verb);
Action declare_explain(CLI::App& verb);
Action declare_inspect(CLI::App& verb);
Action declare_place(CLI::App& verb);
Action declare_plan(CLI::App& verb);
Action declare_report(CLI::App& verb);
Action declare_run(CLI::App& verb);
Action declare_simulate(CLI::App& verb);
Action declare_supervise(CLI::App& verb);
Action declare_version(CLI::App& verb);

}  // namespace autodist::app
