// What a process does that is no rank and starts a job's ranks again when they were lost: it asks
// the arbiter, says what happens, and keeps what the job remembers.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "autodist/base/units.h"
#include "autodist/job/arbiter.h"
#include "autodist/job/job_memory.h"

namespace autodist::app {

class Supervision {
 public:
  // Throws Error(kEnvironment).
  explicit Supervision(std::uint32_t restarts) : arbiter_(restarts) {}

  job::JobMemory& memory() { return memory_; }

  // While a generation runs: says when it trains again.
  void look();

  // When a generation has ended: whether another one begins, which is said and waited for. The job
  // goes on from a checkpoint where `folder` holds one of this job's; empty: where it finds them
  // is its own affair. `stop` ends the waiting: the job is over then.
  bool goes_on(job::GenerationEnd end, const std::string& folder, const std::atomic<bool>& stop);

  // The newest checkpoint that this job wrote there; nothing: it wrote none.
  [[nodiscard]] std::optional<std::string> checkpoint_in(const std::string& folder) const;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::string where_it_begins(const std::string& folder) const;

  job::Arbiter arbiter_;
  job::JobMemory memory_;
  std::optional<Clock::time_point> lost_at_;  // until it trains again
};

}  // namespace autodist::app
