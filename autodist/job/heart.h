// The chief's sign of life to who supervises the job, whatever the chief's program does.

#pragma once

#include <thread>

#include "autodist/base/mutex.h"
#include "autodist/base/units.h"
#include "autodist/job/job_memory.h"

namespace autodist::job {

class Heart {
 public:
  // A thread beats every `interval`; who hears nothing for `silence_limit` takes the chief for
  // lost. `memory` outlives this.
  Heart(JobMemory& memory, Seconds interval, Seconds silence_limit);
  // Silence means nothing from here on.
  ~Heart();
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;

 private:
  void beat();

  JobMemory& memory_;
  Seconds interval_;
  Seconds silence_limit_;
  Mutex mutex_;
  bool rests_ AD_GUARDED_BY(mutex_) = false;
  ConditionVariable rest_;
  std::thread thread_;
};

}  // namespace autodist::job
