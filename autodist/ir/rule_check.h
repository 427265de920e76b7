// What an update rule can train.

#pragma once

#include "autodist/ir/graph.h"

namespace autodist::ir {

// Throws Error(kUsage) where the rule cannot train the variable: momentum or weight decay on one
// with sparse gradients.
void check_trains(const Variable& variable, const UpdateRule& rule);

}  // namespace autodist::ir
