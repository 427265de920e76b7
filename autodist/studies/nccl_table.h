// Tables of measured all-reduces, as nccl-tests and vTrain write them, and lines through them.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::studies {

// Measured times of one library and number of ranks: piecewise linear between knots.
class FittedCollective {
 public:
  struct Knot {
    double bytes = 0;
    double seconds = 0;
  };

  // Lines from sample to sample, each as long as all samples below it lie within `tolerance` of it
  // (and no longer than 64 samples), from the first one on. REQUIRES: samples ascending in bytes,
  // positive.
  static FittedCollective fit(const std::vector<Knot>& samples, double tolerance = 0.005);

  explicit FittedCollective(std::vector<Knot> knots) : knots_(std::move(knots)) {}
  // Below the first knot and above the last one the nearest line goes on.
  [[nodiscard]] Seconds seconds(double bytes) const;
  [[nodiscard]] const std::vector<Knot>& knots() const { return knots_; }

 private:
  std::vector<Knot> knots_;
};

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

}  // namespace autodist::studies
