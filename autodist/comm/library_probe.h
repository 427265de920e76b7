// What a library's all-reduce takes between the ranks of this job: measured once, before a search
// that may choose it.

#pragma once

#include "autodist/base/clock.h"
#include "autodist/base/units.h"
#include "autodist/comm/collectives.h"

namespace autodist::comm {

struct LibraryFigures {
  Seconds call;  // of an all-reduce of a few bytes
  // Of a buffer's bytes, beyond what a call takes.
  double bytes_per_s = 0;
};

// By all ranks together. Takes a dozen calls of a few bytes and three of a mebibyte. Throws as
// Collectives::all_reduce() does. REQUIRES: the collectives sum the host's memory.
LibraryFigures probe_library(Collectives& collectives, const Clock& clock);

}  // namespace autodist::comm
