// What strategies can say and Programs cannot, yet. It is refused in one line, never ignored.

#pragma once

#include <string>

#include "autodist/ir/graph.h"
#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::passes {

// Frames of one kind between two ranks may be less than 64 steps apart (comm/admission.h).
inline constexpr std::int32_t kMostStaleness = 32;

// Throws Error(kInfeasible) for a codec that an all-reduce's algorithm does not carry (PowerSGD
// goes by a library, the others by owners), and for a library's sums that owners shall update; for
// staleness above 32, and for any or sync: false where a norm is needed (clips, LAMB); for results
// that are asked for and a proxy; for a variable whose shards differ in staleness, sync,
// compression, place of the update or delivery, or go to parameter servers in part, or to a library
// in part; Error(kUsage) for a priority that is no time and for a variable that two clips name.
// REQUIRES: strategy::check() holds.
void check_supported(const strategy::Strategy& strategy, const ir::Graph& graph,
                     const std::string& where);

// Throws Error(kInfeasible) for what loss scaling cannot go with: staleness, sync: false, error
// feedback.
void check_loss_scaling(const strategy::Strategy& strategy, const std::string& where);

// Throws Error(kInfeasible) where ranks all-reduce by a library, which sends in clear.
void check_encrypted(const program::Program& program, const std::string& where);

}  // namespace autodist::passes
