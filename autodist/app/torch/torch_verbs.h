// The verbs that compute.

#pragma once

#include "autodist/app/cli/program.h"

namespace autodist::app {

Action declare_demo(CLI::App& verb);
Action declare_capture(CLI::App& verb);
Action declare_train(CLI::App& verb);
// `plan`, whose --trials are a training of no steps.
Action declare_plan_by_trials(CLI::App& verb);
Action declare_export(CLI::App& verb);
Action declare_ckpt(CLI::App& verb);
Action declare_record(CLI::App& verb);

}  // namespace autodist::app
