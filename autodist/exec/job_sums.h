// Sums over the samples of a step at all replicas (the loss first), which become known a little
// after the step: they ride on a slice (rider.h) or come as notes.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/exec/signal.h"

namespace autodist::exec {

// Of one step. Filled once; whoever sees known() sees the rest.
class StepSums {
 public:
  explicit StepSums(std::uint64_t step) : step_(step) {}
  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] bool known() const { return known_.load(std::memory_order_acquire); }
  // REQUIRES of both: known().
  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }
  [[nodiscard]] std::int64_t samples() const { return samples_; }

 private:
  friend class JobSums;
  std::uint64_t step_;
  std::vector<double> sums_;
  std::int64_t samples_ = 0;
  std::atomic<bool> known_{false};
};

// The sums of steps that are not known yet. Sums that nobody asks for take their memory until they
// are known.
class JobSums {
 public:
  explicit JobSums(Signal& signal) : signal_(signal) {}  // outlives it

  // Of a step that begins. By the thread that steps.
  std::shared_ptr<const StepSums> open(std::uint64_t step);
  // Any thread; nothing for a step that is not open.
  // `sums`: the samples first, then what is added up over them; none where nobody had samples.
  void put(std::uint64_t step, std::vector<double> sums);
  // Throws as Signal::wait.
  void await(const StepSums& sums, Seconds limit);

  // Returns when no step before this one is open. Throws as Signal::wait.
  void await_all_before(std::uint64_t step, Seconds limit);

  // Where a step's sums come as notes, one of each of `ranks` ranks: keeps this one. With the last
  // one every rank's note, by rank; nothing is kept of them.
  std::optional<std::map<std::uint32_t, std::string>> take_note(std::uint64_t step,
                                                                std::uint32_t from,
                                                                std::size_t ranks,
                                                                std::string note);

 private:
  Signal& signal_;
  std::map<std::uint64_t, std::shared_ptr<StepSums>> open_ AD_GUARDED_BY(signal_);
  std::map<std::uint64_t, std::map<std::uint32_t, std::string>> notes_ AD_GUARDED_BY(signal_);
};

}  // namespace autodist::exec
