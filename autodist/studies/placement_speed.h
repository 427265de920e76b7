// How fast placements are evaluated: the figures of `bench place`.

#pragma once

#include <string>

#include "autodist/studies/figures.h"

namespace autodist::studies {

// On the generated graphs of about 300 tasks, one per family, four devices. `quick` repeats less.
Figures measure_placement(bool quick);

std::string placement_speed_page(const Figures& figures);
std::string placement_speed_table(const Figures& figures);

}  // namespace autodist::studies
