// What there is of a slice beside the ranks' copies of its variables, and at which ranks: for
// whoever gathers it.

#pragma once

#include <vector>

#include "autodist/exec/topic.h"
#include "autodist/program/program.h"

namespace autodist::exec {

enum class SliceState {
  kParameters,   // of the slice's elements
  kRule,         // of the update rule, per piece as its rule has them, where the owner updates
  kOwed,         // by compression at contributors, of the slice's elements
  kOwedAverage,  // by compression of the averages, of the slice's elements
};

// Ascending; none where the slice has no such state. Where every rank updates, each has the whole
// state of its rules (LocalVariables::states).
std::vector<program::Rank> holders_of(const program::Slice& slice, SliceState state);

// The messages in which it travels.
Topic topic_of(SliceState state);

// Names of a variable's whole tensors of it end in this: "owed". REQUIRES: one that is owed.
const char* suffix_of(SliceState state);

}  // namespace autodist::exec
