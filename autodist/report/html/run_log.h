// The figures of a run, step by step, as `train --log` wrote them (app/metrics.h), and thinned so
// that no extreme is lost.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::report {

// A rank was lost, and the job trained again, with that step.
struct LostRank {
  std::int64_t step = 0;
  std::int64_t steps_again = 0;  // done once more
  Seconds away;                  // since the loss was noticed
};

struct RunLog {
  RunLog() = default;
  // Without steps, of figures of these names.
  explicit RunLog(std::vector<std::string> figures)
      : names(std::move(figures)), columns(names.size()) {}

  std::vector<std::int64_t> steps;  // ascending
  std::vector<std::string> names;   // "loss", "samples_per_second"
  // columns[i][j]: names[i] at steps[j]; not a number where it was none.
  std::vector<std::vector<double>> columns;
  // The plan that each step ran under: an index into the plans' names; "" is one that is not known.
  std::vector<std::string> plans;
  std::vector<std::size_t> plan_of;
  std::vector<LostRank> losses;
  std::int64_t overwritten = 0;  // steps that a resumed run did again; the later one stands

  void add(std::int64_t step, const std::vector<double>& values, const std::string& plan = "");
};

// JSON lines, or CSV with a head. Numbers are taken, and the name of the plan where the log has it;
// other fields are passed over. `where` names the source in messages; throws Error(kUsage) for
// anything else. A last line that was cut short, as by a run that is still going on, is passed
// over.
RunLog parse_run_log(const std::string& text, const std::string& where);

// At most about `most` steps: of each stretch of equal length those at which some figure is at its
// least, at its most, or not a number, and of several plans some.
RunLog thinned(const RunLog& log, std::size_t most);

}  // namespace autodist::report
