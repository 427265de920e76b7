#include "autodist/exec/job_queue.h"

#include <memory>
#include <tuple>
#include <utility>

#include "autodist/base/background.h"
#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

enum class Fate : std::uint8_t { kOpen, kDone, kDropped };

// A part of a job that run() waits for: tells it what became of the job, at the latest when the
// queue lets go of that.
class Told {
 public:
  Told(Signal& signal, std::shared_ptr<Fate> fate) : signal_(signal), fate_(std::move(fate)) {}
  ~Told() { tell(Fate::kDropped); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  // The first one counts.
  void tell(Fate fate) {
    {
      const MutexLock lock(signal_);
      if (*fate_ != Fate::kOpen) return;
      *fate_ = fate;
    }
    signal_.notify();
  }

 private:
  Signal& signal_;
  const std::shared_ptr<Fate> fate_;  // guarded by the signal's lock
};

}  // namespace

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
  const auto fate = std::make_shared<Fate>(Fate::kOpen);
  push(step, needed, [told = std::make_shared<Told>(signal, fate), job = std::move(job)] {
    job();
    told->tell(Fate::kDone);
  });
  {
    const MutexLock lock(signal);
    signal.wait(
        limit, [&] { return *fate != Fate::kOpen; }, [&] { return std::string(late); });
    if (*fate == Fate::kDone) return;
  }
  signal.rethrow();
  fail(ErrorCode::kPeersLost, "{} It has ended.", late);
}

void JobQueue::stop() {
  drop();
  if (thread_.joinable()) thread_.join();
}

// Jobs are let go outside of the lock: that takes the lock of a signal, under which others push.
void JobQueue::drop() {
  decltype(jobs_) dropped;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    jobs_.swap(dropped);
  }
  changed_.notify_one();
}

void JobQueue::work() {
  while (true) {
    std::function<void()> job;
    {
      const MutexLock lock(mutex_);
      changed_.wait(mutex_, [&]() AD_REQUIRES(mutex_) { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = jobs_.top().run;
      jobs_.pop();
    }
    try {
      job();
    } catch (...) {
      on_error_(std::current_exception());
      return drop();
    }
  }
}

}  // namespace autodist::exec
