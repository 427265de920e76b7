// `autodist bench` and what of it needs no libtorch.

#pragma once

#include <string>
#include <vector>

#include "autodist/app/cli/program.h"

namespace autodist::studies {

// The benchmarks among them; `autodist bench` hands the others over.
const std::vector<std::string>& light_benchmarks();

app::Action declare_bench_light(CLI::App& verb);

}  // namespace autodist::studies
