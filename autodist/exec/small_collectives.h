// What ranks tell each other beside gradients and norms: what a step was to each of them, what the
// chief gathers, and who is done.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/calls.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/step_counter.h"
#include "autodist/exec/topic.h"
#include "autodist/program/program.h"

namespace autodist::exec {

inline constexpr std::uint32_t kMostShares = 6;    // between two steps
inline constexpr std::uint32_t kMostOutcomes = 8;  // between two steps

class SmallCollectives {
 public:
  // `program`, `signal` and `calls` outlive it. `calls` waits, except for the end.
  SmallCollectives(const program::Program& program, program::Rank self, Signal& signal,
                   Calls& calls, PostNote post);

  // A note of another rank on a topic of this class or of Calls. By the receiving thread.
  void take(const comm::Frame& frame);

  // Small bytes about a step from every computing rank to every other (a loss, a wish to stop).
  void tell(std::uint64_t step, const std::string& note);
  // What all of them told, by rank; waits for the last. REQUIRES: once per step for which this rank
  // told.
  std::vector<std::string> told(std::uint64_t step);

  // Bytes of every computing rank to the chief alone, who gets all of them, by rank; the others get
  // nothing and do not wait. On kGathering or kOwed; the subject's number says which gathering of
  // this step it is. By all computing ranks, once per subject between two steps.
  std::map<std::uint32_t, std::string> gather_at_chief(Subject subject, std::uint64_t step,
                                                       std::string bytes);

  // Bytes of every computing rank to every other, by rank; waits for the last. By all of them, at
  // most kMostShares times between two steps: throws Error(kUsage).
  std::vector<std::string> share(std::uint64_t step, const std::string& bytes);

  // As share(), on a subject of the caller's: bytes of every computing rank to every other, by the
  // rank's number; waits for the last. By all of them, once per subject between two steps.
  std::map<std::uint32_t, std::string> exchange(Subject subject, std::uint64_t step,
                                                const std::string& bytes);

  // The chief's bytes at every computing rank; the others' count for nothing.
  std::string of_chief(Subject subject, std::uint64_t step, const std::string& bytes);

  // What the chief says of a work that it alone has done after the step, at whoever asks: the n-th
  // call between two steps returns its n-th. The chief does not wait for those who ask, and some
  // may not. At most kMostOutcomes times between two steps: throws Error(kUsage).
  std::string outcome(std::uint64_t step, const std::string& of_chief);

  // Returns when all computing ranks have called it with this topic and step.
  void meet(Topic topic, std::uint64_t step);

  // Who only serves is needed until all have computed, and everybody until the chief has gathered
  // what it wants to save: tells those who wait for this rank, and waits for the chief.
  void leave(std::uint64_t step);
  // Waits until all computing ranks have left; for a rank that only serves. `meanwhile` is called
  // several times a second, on this thread.
  void wait_for_the_end(const std::function<void()>& meanwhile);

 private:
  // To every other computing rank, and to itself.
  void give_all(Subject subject, std::uint64_t step, const std::string& note);
  void keep(Subject subject, std::uint64_t step, std::uint32_t from, std::string note);
  void forget_outcomes(std::uint64_t step) AD_REQUIRES(signal_);
  // The notes of these ranks, by rank; waits for the last.
  std::map<std::uint32_t, std::string> collect(Subject subject, std::uint64_t step,
                                               const std::vector<std::uint32_t>& ranks);

  const program::Program& program_;
  const program::Rank self_;
  Signal& signal_;
  Calls& calls_;
  PostNote post_;
  std::vector<std::uint32_t> computing_;  // ranks
  // Open at a time: two steps, and as many more as the program's staleness.
  std::map<std::pair<Subject, std::uint64_t>, std::map<std::uint32_t, std::string>> notes_
      AD_GUARDED_BY(signal_);
  std::set<std::uint32_t> done_ AD_GUARDED_BY(signal_);  // ranks
  // By the calling thread alone.
  StepCounter shares_;
  StepCounter outcomes_;
};

}  // namespace autodist::exec
