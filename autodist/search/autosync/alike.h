// Which candidates of a search the simulator hardly tells apart.

#pragma once

#include <cstddef>
#include <vector>

#include "autodist/search/autosync/found.h"

namespace autodist::search {

// Indices into found.candidates, ascending: simulated in full, within 3 % of the best. Builders'
// alone where there are some: nothing that was searched is told from them. All-reduces by a library
// only where nothing else is left. Of more than sixteen, sixteen evenly taken, the first and
// the last among them. REQUIRES: candidates in order of judgement.
std::vector<std::size_t> alike(const Found& found);

}  // namespace autodist::search
