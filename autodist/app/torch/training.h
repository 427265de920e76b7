// The training loop of `train`: epochs over a data set, progress, checkpoints, metrics.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/job/torch/session.h"
#include "autodist/models/data.h"

namespace autodist::app {

struct TrainingOptions {
  std::int64_t steps = 100;     // up to this step, counted from the start of the training
  std::int64_t batch = 32;      // samples per step, all replicas together
  std::uint64_t seed = 0;       // of the order of samples
  std::string save_to;          // checkpoint directory; empty: none
  std::int64_t save_every = 0;  // steps; also every ten minutes, and at the end
  std::string log;              // one line per step (app/metrics.h: open_lines); empty: none
  std::string tensorboard;      // a folder for an event file; empty: none
  // At the chief, once a log or a checkpoint cannot be written, in a line; the training goes on.
  std::function<void(const std::string&)> warn;
};

// One step as it is shown. `loss` is the mean over all samples of the step.
struct Progress {
  std::int64_t step = 0;
  double ended = 0;  // seconds since 1970
  double loss = 0;
  Seconds wall;              // from step to step, with all that the loop does in between
  std::int64_t samples = 0;  // of all replicas
  Seconds computing;
  Seconds waiting;
  std::string plan;  // StepReport::plan
};

// Of all replicas, by the time from step to step.
double samples_per_second(const Progress& progress);

// What a log has of a step: the names of its figures, and these.
const std::vector<std::string>& logged_names();
std::vector<double> logged_values(const Progress& progress);

struct TrainingResult {
  std::int64_t steps = 0;  // done in this run
  // Of the last step, also where it was done before a loss of ranks after which this run had
  // nothing left to do. Nothing: that is not known.
  std::optional<double> loss;
  // Samples of all replicas per second, after warm-up: mean over the run, and the 10th and 90th
  // percentile over steps; 0 where all steps were warm-up.
  double average_samples_per_second = 0;
  double p10_samples_per_second = 0;
  double p90_samples_per_second = 0;
  Seconds computing;  // means per step of this rank
  Seconds waiting;
  bool interrupted = false;
  bool saved = false;  // the last checkpoint is written
  // The caller's to set, where the data hold samples out, and with loss scaling.
  std::optional<double> held_out_accuracy;
  std::optional<ir::LossScale> loss_scale;
  // What is missing on disk at the end, a line each: rows of a log, at the chief; the last
  // checkpoint.
  std::vector<std::string> missing;
};

// Every rank calls it with the same options. `interrupt` (set by a signal, on any rank) ends all
// ranks after the same step, with a checkpoint.
TrainingResult train(Session& session, const models::Dataset& data, const TrainingOptions& options,
                     const std::atomic<bool>& interrupt,
                     const std::function<void(const Progress&)>& show);

// Share of the samples whose largest output is at the label (the batch's last tensor), over all of
// `data`; every rank computes the whole.
double accuracy_of(Session& session, const models::Dataset& data, std::int64_t batch);

}  // namespace autodist::app
