// A prediction beside a measurement: two traces of the same job, row by row where they can be
// compared.

#pragma once

#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/program/trace.h"

namespace autodist::app {

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
  std::size_t ranks_predicted = 0;  // that compute
  std::size_t ranks_measured = 0;
  std::string graph_predicted;  // its name; "" where the trace does not say it
  std::string graph_measured;
  Compared step;                    // between the ends of two steps' last ops
  std::vector<Compared> phases;     // by activity
  std::vector<Compared> variables;  // waited for at gates and on the wire; largest difference first
};
// Throws Error(kUsage) where they have no rank in common.
Comparison compare(const program::Trace& predicted, const program::Trace& measured);

// A line where both graphs have names and these differ, as "the prediction" and "the measurement"
// or whatever the traces are; else "".
std::string of_other_models(const std::string& one, const std::string& one_graph,
                            const std::string& other, const std::string& other_graph);

// In at most so many columns (0: any number), of at most so many variables (0: of all).
std::string comparison_table(const Comparison& comparison, std::size_t most, std::size_t columns);
std::string comparison_json(const Comparison& comparison);

// Both traces in one file for Perfetto: of each rank the prediction above the measurement,
// beginning at one moment.
std::string side_by_side(const program::Trace& predicted, const program::Trace& measured);

}  // namespace autodist::app
