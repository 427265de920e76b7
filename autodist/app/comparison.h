// A prediction beside a measurement: two traces of the same job, row by row where they can be
// compared.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::app {

// A trace as it lies in a file (program::to_chrome_json).
struct TraceFile {
  struct Row {
    std::string activity;  // "compute"
    std::string name;
    std::uint32_t rank = 0;
    std::uint32_t track = 0;
    std::uint64_t step = 0;
    std::int64_t bytes = 0;
    Seconds start;
    Seconds end;
  };
  std::vector<Row> rows;
};

// Throws Error(kUsage), prefixed with `where`, for what is no trace of ours, or has no rows.
TraceFile parse_trace(const std::string& json, const std::string& where);

struct Compared {
  std::string name;
  Seconds predicted;
  Seconds measured;

  // Relative to the measurement; 0 where both are 0.
  [[nodiscard]] double error() const {
    if (measured == Seconds{}) return predicted == Seconds{} ? 0 : 1;
    return predicted / measured - 1;
  }
};

// Everything per step and rank, over the ranks and the steps that both traces have; where they have
// no step in common, as the last ones of a long training, over all of each. Without the first step
// where there are others, which nothing precedes.
struct Comparison {
  Compared step;                    // between the ends of two steps' last ops
  std::vector<Compared> phases;     // by activity
  std::vector<Compared> variables;  // waited for at gates and on the wire; largest difference first
};
// Throws Error(kUsage) where they have no rank in common.
Comparison compare(const TraceFile& predicted, const TraceFile& measured);

std::string comparison_table(const Comparison& comparison, std::size_t most);
std::string comparison_json(const Comparison& comparison);

// Both in one file for Perfetto: of each rank the prediction above the measurement, from the same
// moment on.
std::string side_by_side(const TraceFile& predicted, const TraceFile& measured);

}  // namespace autodist::app
