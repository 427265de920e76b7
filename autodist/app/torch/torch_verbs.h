// The verbs that compute.

#pragma once

#include "autodist/app/cli/program.h"

namespace autodist::app {

Action declare_demo(CLI::App& verb);
Action declare_capture(CLI::App& verb);
Action declare_train(CLI::App& verb);
Action declare_ckpt(CLI::App& verb);
Action declare_bench(CLI::App& verb);

}  // namespace autodist::app
