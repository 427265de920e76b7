// What fixes the bits of a step: two lossless plans may compute the same to rounding, and not to
// the bit, because they add up in another order.

#pragma once

#include "autodist/program/program.h"

namespace autodist::program {

// Equal for two Programs of one graph whose losses and parameters are equal bit for bit, if both
// are reproducible(). Covers codecs, staleness, who adds up what on its way, factors, library
// all-reduces, shares of the batch, and, where something depends on them (a clip, LAMB, top-k, sums
// on the way), slices and owners. Of plans that differ in nothing else (owners, slices, windows,
// priorities, where the update runs, what is asked for) it is the same.
Digest sum_digest(const Program& program);

}  // namespace autodist::program
