// What the threads of one rank wait on: something changed, or the run has failed. It is the mutex
// of the rank's protocol, of what the protocol decides about, and of all that conditions of waits
// read.

#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/mutex.h"
#include "autodist/base/units.h"

namespace autodist::exec {

// The limit of a wait that only a failure ends: a user, or training, takes as long as it takes.
inline constexpr Seconds kYears{1e8};

// What a wait ends for beside its condition: a thread that does what the last step owes goes on
// where the job has ended.
enum class Heeds : std::uint8_t { kFailureAndEnd, kFailure };

class AD_CAPABILITY("signal") Signal : public Mutex {
 public:
  void notify() { changed_.notify_all(); }

  // Ends all waits, present and future, with `reason`. The first reason stays.
  void fail(std::exception_ptr reason) AD_EXCLUDES(this) {
    {
      const MutexLock lock(*this);
      if (!failure_) failure_ = std::move(reason);
    }
    notify();
  }

  // Ends the waits that heed an end, present and future, with `reason`: the job has ended without a
  // failure, which may still come. The first reason stays, until resume().
  void end(std::exception_ptr reason) AD_EXCLUDES(this) {
    {
      const MutexLock lock(*this);
      if (!end_) end_ = std::move(reason);
    }
    notify();
  }
  void resume() AD_EXCLUDES(this) {
    const MutexLock lock(*this);
    end_ = nullptr;
  }

  // Why fail() was called, or nullptr.
  [[nodiscard]] std::exception_ptr failure() AD_EXCLUDES(this) {
    const MutexLock lock(*this);
    return failure_;
  }
  // Throws it, or the end where that is heeded, if there is one.
  void rethrow(Heeds heeds = Heeds::kFailureAndEnd) AD_EXCLUDES(this) {
    const MutexLock lock(*this);
    throw_what_is(heeds);
  }

  // Until condition() holds, which is called under the lock. Throws what is heeded, or after
  // `limit` Error(kTimeout) with the text of describe(), which is called under the lock.
  template <typename Condition, typename Describe>
  void wait(Seconds limit, Condition condition, Describe describe,
            Heeds heeds = Heeds::kFailureAndEnd) AD_REQUIRES(this) AD_UNCHECKED_THREADS {
    if (!wait_for(limit, condition, heeds)) throw Error(ErrorCode::kTimeout, describe());
  }

  // Until condition() holds, which is called under the lock; false after `limit`. Throws what is
  // heeded.
  template <typename Condition>
  bool wait_for(Seconds limit, Condition condition, Heeds heeds = Heeds::kFailureAndEnd)
      AD_REQUIRES(this) AD_UNCHECKED_THREADS {
    const SteadyClock clock;
    const Seconds deadline = clock.now() + limit;
    while (!condition()) {
      throw_what_is(heeds);
      const Seconds left = deadline - clock.now();
      if (left <= Seconds{0}) return false;
      changed_.wait_for(*this, left);
    }
    return true;
  }

 private:
  void throw_what_is(Heeds heeds) const AD_REQUIRES(this) {
    if (failure_) std::rethrow_exception(failure_);
    if (end_ && heeds == Heeds::kFailureAndEnd) std::rethrow_exception(end_);
  }

  ConditionVariable changed_;
  std::exception_ptr failure_ AD_GUARDED_BY(this);
  std::exception_ptr end_ AD_GUARDED_BY(this);
};

}  // namespace autodist::exec
