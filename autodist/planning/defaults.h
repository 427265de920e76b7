// What a plan takes where nobody says otherwise.

#pragma once

#include <string>

#include "autodist/strategy/strategy.h"

namespace autodist::planning {

// AutoDist's default.
inline const std::string kDefaultBuilder = "PSLoadBalancing";
// What stands in a builder's place for the search (docs/autosync.md).
inline const std::string kSearch = "auto";

// A new id, where the strategy has none.
void set_id(strategy::Strategy& strategy);

}  // namespace autodist::planning
