// Work in a fixed number of lanes, on however many cores there are: what a lane computes depends on
// its index alone, so the answers are the same on any machine.

#pragma once

#include <cstddef>
#include <functional>

namespace autodist::search::placement {

// Calls work(lane) for every lane below `lanes`, on at most `threads` threads (0: as many as the
// machine has), and returns when all are done. The first exception of the lowest lane is thrown on.
void run_lanes(std::size_t lanes, std::size_t threads,
               const std::function<void(std::size_t)>& work);

}  // namespace autodist::search::placement
