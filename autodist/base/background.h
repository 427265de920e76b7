// Threads that do not interrupt those that compute, and are not kept waiting by them either.

#pragma once

#include "autodist/base/clock.h"
#include "autodist/base/units.h"

namespace autodist {

// Threads that the calling thread starts during this object's life begin to run when a core is idle
// or the time slice of what runs there is over (Linux: SCHED_BATCH); otherwise one that is woken
// often, by every few packets say, takes the core each time. Their share of the cores is the same.
// Where the system refuses, they are as other threads. The calling thread itself is one meanwhile.
class BackgroundThreads {
 public:
  BackgroundThreads();
  ~BackgroundThreads();
  BackgroundThreads(const BackgroundThreads&) = delete;
  BackgroundThreads& operator=(const BackgroundThreads&) = delete;

 private:
  bool changed_ = false;
};

// When a thread that computes offers its core to the threads in the background: once a millisecond.
// Without that they wait for the end of its time slice, which is several milliseconds, and so does
// every rank that waits for their answer.
//
// A thread that offers its core gives up the rest of its time slice, and another program may take
// it. Threads in the background come back soon. So an offer that lasts longer than they usually
// take doubles the time until the next one, and a short one takes a tenth from it.
class CoreOffers {
 public:
  static constexpr Seconds kShortest{1e-3};
  static constexpr Seconds kLongest{64e-3};
  static constexpr Seconds kForeign{2e-3};  // an offer that lasts longer went to another program

  [[nodiscard]] bool is_due(Seconds now) const { return now >= next_; }
  // The core was offered at `begin` and is back at `end`.
  void made(Seconds begin, Seconds end);

 private:
  Seconds interval_ = kShortest;
  Seconds next_{};
};

// Offers the calling thread's core where an offer is due.
void offer_core(CoreOffers& offers, const Clock& clock);

}  // namespace autodist
