// Where the time of a step went, from a timeline: by rank, by variable that was waited for, and in
// one sentence.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/report/html/timeline.h"

namespace autodist::report {

// Of the job: from the first row that any rank computes to the first one of the next step.
struct StepTime {
  std::uint64_t step = 0;
  std::int64_t start_ns = 0;
  Seconds length;
  bool whole = true;  // false: the last one, whose successor is not in the trace
};

// Means per step of a rank. The first four add up to the step.
struct RankTimes {
  program::Rank rank;
  Seconds computing;      // ops
  Seconds waiting;        // at gates, for variables
  Seconds handing_over;   // gradients, to the engine
  Seconds between;        // neither: between the ops
  Seconds owning;         // sums, updates and installations, on threads beside the ops
  Seconds sending;        // while at least one slice is on its way
  Seconds behind;         // its last op ends so much later than the median rank's
  std::int64_t last = 0;  // steps in which it ended as the last of all
};

struct WaitedFor {
  std::string name;
  std::int64_t waits = 0;  // longer than nothing
  Seconds per_step;        // mean over the ranks
  Seconds longest;
  program::Rank rank;  // where the longest was
};

struct StepTimes {
  std::vector<StepTime> steps;
  std::int64_t counted = 0;      // steps that the means are over
  std::vector<RankTimes> ranks;  // those that compute
  std::vector<WaitedFor> waits;  // the dearest first
  Seconds median;                // of the lengths of the counted steps
  std::uint64_t median_step = 0;
  std::uint64_t slowest_step = 0;
};

// The first step, which finds everything cold, and the last one, whose end is not seen, do not
// count where there are others.
StepTimes times_of(const Timeline& timeline);

struct Verdict {
  std::string headline;              // "Bounded by computing"
  std::vector<std::string> reasons;  // one sentence each
  std::string what_to_do;
};
// What the step was bounded by, and what helps. REQUIRES: a rank computes.
Verdict verdict_of(const StepTimes& times);

// The steps that a page shows first: the median one and the one after it, the slowest, the first,
// then by distance from the median.
std::vector<std::uint64_t> worth_showing(const StepTimes& times);

}  // namespace autodist::report
