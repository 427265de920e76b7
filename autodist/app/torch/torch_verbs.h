// The verbs that compute.

#pragma once

#include <cstdint>

#include "autodist/app/cli/program.h"

namespace autodist::app {

// The largest number of steps or samples that an option takes.
inline constexpr std::int64_t kMostCount = 1'000'000'000;

Action declare_demo(CLI::App& verb);
Action declare_capture(CLI::App& verb);
Action declare_train(CLI::App& verb);
// `plan`, whose --trials are a training of no steps.
Action declare_plan_by_trials(CLI::App& verb);
Action declare_export(CLI::App& verb);
Action declare_ckpt(CLI::App& verb);
Action declare_record(CLI::App& verb);

}  // namespace autodist::app
