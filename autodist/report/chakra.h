// A Program as Chakra execution traces (MLCommons; docs/formats/chakra.md): what one rank computes,
// sends and receives in one step, for other simulators.

#pragma once

#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/program/program.h"

namespace autodist::report {

// The trace of one rank: varint-delimited protobuf messages, GlobalMetadata first. `ops` are the
// times of the graph's ops. Our own facts are attributes named autodist.*, times in nanoseconds.
std::string chakra_trace(const program::Program& program, program::Rank rank,
                         const std::vector<Seconds>& ops);

}  // namespace autodist::report
