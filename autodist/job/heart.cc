#include "autodist/job/heart.h"

#include "autodist/base/background.h"

namespace autodist::job {

Heart::Heart(JobMemory& memory, Seconds interval, Seconds silence_limit)
    : memory_(memory), interval_(interval), silence_limit_(silence_limit) {
  memory_.beat(silence_limit_);
  const BackgroundThreads from_here;
  thread_ = std::thread([this] { beat(); });
}

Heart::~Heart() {
  {
    const MutexLock lock(mutex_);
    rests_ = true;
  }
  rest_.notify_all();
  thread_.join();
  memory_.beat(Seconds{0});
}

void Heart::beat() {
  const MutexLock lock(mutex_);
  while (!rests_) {
    memory_.beat(silence_limit_);
    rest_.wait_for(mutex_, interval_);
  }
}

}  // namespace autodist::job
