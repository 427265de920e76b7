// What a plan takes where nobody says otherwise.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/strategy/strategy.h"

namespace autodist::planning {

// AutoDist's default.
inline const std::string kDefaultBuilder = "PSLoadBalancing";
// What stands in a builder's place for the search (docs/autosync.md).
inline const std::string kSearch = "auto";

// Since 1970, by this machine's clock: what an id is made of.
std::int64_t now_in_microseconds();

// A new id, where the strategy has none.
void set_id(strategy::Strategy& strategy);

}  // namespace autodist::planning
