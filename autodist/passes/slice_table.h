// The slice table while passes still move its rows.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::passes {

// Cuts [begin, end) into the fewest ranges of at most `limit`, as even as possible: sizes differ by
// at most one and there is no small rest. An empty range stays one. REQUIRES: limit >= 1.
std::vector<program::Piece> cut(const program::Piece& whole, std::int64_t limit);

// Lets every variable's plan name the slices that hold it, ascending, and no others.
void name_slices(program::Program& program);

}  // namespace autodist::passes
