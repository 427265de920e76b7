// Gradients that may travel as the two matrices that they are products of (ir/factors.h): what that
// saves, what it costs, and the least that a step then needs. Private to this folder.

#pragma once

#include <vector>

#include "autodist/program/program.h"
#include "autodist/sim/cost_model.h"

namespace autodist::sim {

struct Factored {
  double saved = 0;         // bytes of a gradient's whole; 0: it has to travel whole
  double multiply_one = 0;  // seconds, of one member's factors, where that is fastest
  double multiply_all = 0;  // of all members', which every member does
};

// By variable. n members that send F bytes of factors to n-1 others each send as much as for a
// gradient of n F / 2 bytes whose sums they share evenly, so that is what remains of its bytes;
// shared unevenly, a slow card would send less.
std::vector<Factored> factored_gradients(const program::Program& program, const CostModel& costs);

// The least time, from `low` to `high`, in which what remains of `bytes` crosses the links at
// `per_byte` and every member multiplies what was saved. Parts of a gradient may go either way
// here, which makes it a bound of all strategies, and easy: the most saved per second of work
// first.
double least_with_factors(const std::vector<Factored>& gradients, double bytes, double per_byte,
                          double low, double high);

}  // namespace autodist::sim
