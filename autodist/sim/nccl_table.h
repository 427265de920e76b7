// Tables of measured all-reduces, as nccl-tests and vTrain write them.

#pragma once

#include <string>
#include <vector>

#include "autodist/sim/collective_cost.h"

namespace autodist::sim {

// CSV with a header; size in bytes in the first column, time out of place in nanoseconds in the
// fourth. Ascending. Throws Error(kUsage), prefixed with `where`, naming the line.
std::vector<FittedCollective::Knot> parse_nccl_table(const std::string& text,
                                                     const std::string& where);

// Relative errors on the odd rows (the 1st, 3rd, …) of a fit of the even ones.
struct FitErrors {
  double mean = 0;
  double p95 = 0;
  double most = 0;
  std::size_t knots = 0;
};
FitErrors judge_fit(const std::vector<FittedCollective::Knot>& table);

}  // namespace autodist::sim
