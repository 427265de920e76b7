// How fast the simulator is and how large a cluster it takes: the figures of `bench sim`.

#pragma once

#include <string>

#include "autodist/studies/figures.h"

namespace autodist::studies {

// `data`: folder of measured NCCL tables; where it is missing their figures are left out. `quick`
// repeats less.
Figures measure_simulator(const std::string& data, bool quick);

// The page docs/benchmarks/simulator.md, and what the terminal shows.
std::string speed_page(const Figures& figures);
std::string speed_table(const Figures& figures);

}  // namespace autodist::studies
