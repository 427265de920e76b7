// Threads that do not interrupt those that compute.

#pragma once

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

}  // namespace autodist
