// The thread on which a rank merges, updates and installs, most urgent first: so that neither the
// compute thread nor the receiving thread of the exchange waits for an addition.

#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <thread>
#include <vector>

#include "autodist/base/mutex.h"
#include "autodist/base/units.h"
#include "autodist/exec/signal.h"

namespace autodist::exec {

class JobQueue {
 public:
  // `on_error` gets what a job throws, on the queue's thread; no job runs after it. Jobs wait for
  // start().
  explicit JobQueue(std::function<void(std::exception_ptr)> on_error);
  ~JobQueue();  // stop()
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  void start();

  // Ordered by (step, needed, arrival), as slices on the wire are. Any thread.
  void push(std::uint64_t step, Seconds needed, std::function<void()> job);

  // The same, and waits until it has run; at most so long, then Error(kTimeout) with `late`. Throws
  // the signal's failure. Not from the queue's thread.
  void run(Signal& signal, Seconds limit, std::uint64_t step, Seconds needed,
           std::function<void()> job, const char* late);

  // Drops what waits, finishes what runs and ends the thread. Idempotent.
  void stop();

 private:
  struct Job {
    std::uint64_t step;
    Seconds needed;
    std::uint64_t arrival;
    std::function<void()> run;
  };
  struct Later {
    bool operator()(const Job& a, const Job& b) const;
  };

  void work();

  std::function<void(std::exception_ptr)> on_error_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::priority_queue<Job, std::vector<Job>, Later> jobs_ AD_GUARDED_BY(mutex_);
  std::uint64_t arrivals_ AD_GUARDED_BY(mutex_) = 0;
  bool stopping_ AD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace autodist::exec
