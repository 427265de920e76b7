// Which candidates of a search are worth a run: good ones that are not all alike, for what fools a
// judge about one of them fools it about its neighbours.

#pragma once

#include <cstddef>
#include <vector>

#include "autodist/search/autosync/found.h"

namespace autodist::search {

// At most `count` indices into found.candidates, all of them judged: the best, the best builder,
// then in order of judgement those that treat at least a fifth of the variables unlike any taken
// before; where these are too few, the best of the others. None twice, under whatever names.
std::vector<std::size_t> diverse(const Found& found, std::size_t count);

}  // namespace autodist::search
