#include "autodist/exec/job_queue.h"

#include <memory>
#include <tuple>
#include <utility>

#include "autodist/base/background.h"

namespace autodist::exec {

bool JobQueue::Later::operator()(const Job& a, const Job& b) const {
  return std::tie(a.step, a.needed.value, a.arrival) > std::tie(b.step, b.needed.value, b.arrival);
}

JobQueue::JobQueue(std::function<void(std::exception_ptr)> on_error)
    : on_error_(std::move(on_error)) {}

JobQueue::~JobQueue() { stop(); }

void JobQueue::start() {
  const BackgroundThreads from_here;
  thread_ = std::thread([this] { work(); });
}

void JobQueue::push(std::uint64_t step, Seconds needed, std::function<void()> job) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    jobs_.push({step, needed, arrivals_++, std::move(job)});
  }
  changed_.notify_one();
}

void JobQueue::run(Signal& signal, Seconds limit, std::uint64_t step, Seconds needed,
                   std::function<void()> job, const char* late) {
  const auto done = std::make_shared<bool>(false);  // guarded by the signal's lock
  push(step, needed, [&signal, done, job = std::move(job)] {
    job();
    {
      const MutexLock lock(signal);
      *done = true;
    }
    signal.notify();
  });
  const MutexLock lock(signal);
  signal.wait(
      limit, [&] { return *done; }, [&] { return std::string(late); });
}

void JobQueue::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void JobQueue::work() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(mutex_, [&]() AD_REQUIRES(mutex_) { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const std::function<void()> job = jobs_.top().run;
    jobs_.pop();
    lock.unlock();
    try {
      job();
    } catch (...) {
      on_error_(std::current_exception());
      lock.lock();
      stopping_ = true;
      return;
    }
    lock.lock();
  }
}

}  // namespace autodist::exec
