// The losses of a job's last steps, by which a step is known to compute the same again when it is
// done again after a loss of ranks.
//
// Plain memory without pointers, which a process may leave in the middle of a change and another
// one goes on with (job/job_memory.h). No clock, file or process.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace autodist::job {

class StepLosses {
 public:
  static constexpr std::size_t kRemembered = 4096;

  // Remembers that this generation, from 0 on, has done the step with this loss. Returns the loss
  // that an earlier generation had there, if it is remembered. Steps are compared within a
  // `series`: those of one model under plans that compute the same bits. One thread at a time.
  std::optional<double> compare(std::int64_t generation, std::uint64_t series, std::int64_t step,
                                double loss);
  void forget();

 private:
  // Those of a series lie one after the other, in turn.
  struct Loss {
    std::atomic<std::int64_t> generation{-1};  // that computed it; -1: there is none
    std::atomic<std::int64_t> step{0};
    std::atomic<std::uint64_t> series{0};
    std::atomic<double> loss{0};
  } losses_[kRemembered];
};

}  // namespace autodist::job
