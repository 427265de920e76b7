// `autodist bench` and what of it needs no libtorch.

#pragma once

#include <string>
#include <vector>

#include "autodist/app/cli/program.h"

namespace autodist::studies {

// The benchmarks among them; `autodist bench` hands the others over.
const std::vector<std::string>& light_benchmarks();

app::Action declare_bench_light(CLI::App& verb);

// A script of share/autodist/tools in the place of this process, told where this program is. Throws
// Error(kEnvironment) where it cannot be.
[[noreturn]] void run_script(const std::string& name, const std::vector<std::string>& words);

}  // namespace autodist::studies
