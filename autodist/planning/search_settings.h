// Of the search that finds a job's strategy (docs/autosync.md).

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "autodist/sim/calibration.h"

namespace autodist {

struct SearchSettings {
  std::string budget = "10s";  // a time, or a number of simulations
  std::uint64_t seed = 0;
  // Whether a plan may have all-reduces by a library, whose sums are not reproducible.
  bool library = true;
  // So many of the best plans run for real before the training, and the fastest is taken. The
  // model's tensors are afterwards as they were.
  std::int64_t trials = 0;
  // Without those: a training begins with trials that count. Plans that add up in the same order
  // run in turn, each for some steps of the training, and the fastest goes on: 3 % of the run's
  // steps, and 20 s, at most. A shorter run has none.
  bool counted_trials = true;
  // Trials that count also of plans that add up in another order: the bits of the training depend
  // on the clock then, and JobOptions::write_plans must keep its plans.
  bool any_trials = false;
  std::int64_t run_steps = 0;      // up to which step the training goes; 0: not known
  std::int64_t trial_warmup = 10;  // steps that are not counted
  std::int64_t trial_steps = 40;   // steps that are
  // A folder in which trials are kept, and from which the search learns; empty: none.
  std::string history;
  std::function<bool()> stop;  // asked often, at the chief: true takes the best so far
  // At the chief: what was found, and what trials took, in lines that end.
  std::function<void(const std::string& lines)> found;
  // What was measured of the cluster; nothing: what the file beside the cluster's says.
  std::optional<sim::Calibration> calibration;
  // A file of a trained ranker (dataset train), where the history has too few plans; empty: none.
  std::string ranker;
};

}  // namespace autodist
