// Measured step times as AutoSync's data set keeps them: YAML, in older files JSON.
//
//   average: 0.25
//   runtime: [0.24, 0.26]

#pragma once

#include <string>
#include <vector>

#include "autodist/base/statistics.h"
#include "autodist/base/units.h"

namespace autodist::planning {

struct Runtimes {
  Seconds average;
  std::vector<Seconds> steps;

  // The median of the steps, as other work spoils some; where they are not known, the average.
  [[nodiscard]] Seconds step() const { return steps.empty() ? average : median_of(steps); }

  friend bool operator==(const Runtimes&, const Runtimes&);
};

// Without `average` it is the mean of the steps; keys that we do not know are passed over. Throws
// Error(kUsage), prefixed with `where`, for what has neither, and for times that are none.
Runtimes parse_runtimes(const std::string& text, const std::string& where);

// YAML that parses back to the same.
std::string to_yaml(const Runtimes& runtimes);

}  // namespace autodist::planning
