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

  // push() of a job, which waits until it has run: for `limit` at most, then it throws
  // Error(kTimeout) with `late`. Throws the signal's failure, and where the queue drops the job
  // without one Error(kPeersLost). Not from the queue's thread. REQUIRES: the signal outlives the
  // queue.
  void run(Signal& signal, Seconds limit, std::uint64_t step, Seconds needed,
           std::function<void()> job, const char* late);

  // Drops what waits, finishes what runs and ends the thread. Idempotent. Not under the lock of a
  // signal that run() was given.
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
  void drop();

  std::function<void(std::exception_ptr)> on_error_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::priority_queue<Job, std::vector<Job>, Later> jobs_ AD_GUARDED_BY(mutex_);
  std::uint64_t arrivals_ AD_GUARDED_BY(mutex_) = 0;
  bool stopping_ AD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace autodist::exec
