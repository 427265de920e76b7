// What a training keeps of its steps for searches to come.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "autodist/app/torch/training.h"
#include "autodist/job/torch/session.h"
#include "autodist/planning/history.h"

namespace autodist::app {

// How long the last counted steps of this run took: as many as a trial has, after its warm-up.
class StepTimes {
 public:
  // Under this strategy, by its id.
  void add(const Progress& progress, const std::string& strategy) {
    if (strategy_ != strategy) {
      strategy_ = strategy;
      seen_ = 0;
      times_.clear();
    }
    if (seen_++ < kWarmup) return;
    if (times_.size() == kCounted) times_.erase(times_.begin());
    times_.push_back(progress.computing + progress.waiting);
  }

  // Kept for the next search, where there were enough of them.
  void keep(const std::string& history, const Session& session, const cluster::Cluster& cluster) {
    if (history.empty() || session.size() == 1 || times_.size() < kLeast) return;
    planning::Runtimes runtimes;
    runtimes.steps = times_;
    for (const Seconds time : times_) runtimes.average += time;
    runtimes.average = runtimes.average * (1.0 / static_cast<double>(times_.size()));
    planning::add_to_history(history, session.graph(), cluster, session.strategy(), runtimes);
  }

 private:
  static constexpr std::size_t kWarmup = 10;
  static constexpr std::size_t kCounted = 40;
  static constexpr std::size_t kLeast = 10;

  std::string strategy_;
  std::size_t seen_ = 0;
  std::vector<Seconds> times_;
};

}  // namespace autodist::app
