// Mutexes whose use clang checks: what an annotation says of a field or a function is an error
// where the code does otherwise (tools/check-threads). gcc sees no annotations.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/units.h"

#if defined(__clang__)
#define AD_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define AD_THREAD_ANNOTATION(x)
#endif

// Of a class whose objects are held and let go, and of one that holds such an object while it
// lives.
#define AD_CAPABILITY(name) AD_THREAD_ANNOTATION(capability(name))
#define AD_SCOPED_CAPABILITY AD_THREAD_ANNOTATION(scoped_lockable)
// Of a field: it is read and written by who holds the mutex.
#define AD_GUARDED_BY(mutex) AD_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: its caller holds the mutex; its caller does not.
#define AD_REQUIRES(...) AD_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define AD_EXCLUDES(...) AD_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a function: it takes the mutex; it lets it go.
#define AD_ACQUIRE(...) AD_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define AD_RELEASE(...) AD_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// Of a function that makes sure that the mutex is held, which the check then takes for true.
#define AD_ASSERTS_HELD(...) AD_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
// Of a function that the check cannot follow.
#define AD_UNCHECKED_THREADS AD_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace autodist {

class AD_CAPABILITY("mutex") Mutex {
 public:
  void lock() AD_ACQUIRE() {
    mutex_.lock();
    set_holder(std::this_thread::get_id());
  }
  void unlock() AD_RELEASE() {
    set_holder({});
    mutex_.unlock();
  }
  // Throws InternalError unless this thread holds it: where the check cannot see that the mutex of
  // two objects is one.
  void assert_held() const AD_ASSERTS_HELD(this) {
    AD_CHECK(holder_.load(std::memory_order_relaxed) == std::this_thread::get_id())
        << "a mutex is not held";
  }

 private:
  friend class ConditionVariable;
  void set_holder(std::thread::id id) { holder_.store(id, std::memory_order_relaxed); }

  std::mutex mutex_;
  std::atomic<std::thread::id> holder_;
};

// Holds a mutex while it lives, but for the time between unlock() and lock().
class AD_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) AD_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() AD_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() AD_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() AD_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  // Until condition() holds, which is called with the mutex held: its lambda says
  // AD_REQUIRES(mutex), too.
  template <typename Condition>
  void wait(Mutex& mutex, Condition condition) AD_REQUIRES(mutex) AD_UNCHECKED_THREADS {
    while (!condition()) {
      const Adopted lock(mutex);
      changed_.wait(lock.held);
    }
  }
  // Until it is notified, or nothing has come after `limit`.
  void wait_for(Mutex& mutex, Seconds limit) AD_REQUIRES(mutex) {
    const Adopted lock(mutex);
    changed_.wait_for(lock.held, std::chrono::duration<double>(limit.value));
  }
  // Whether condition() holds, after `limit` at the latest.
  template <typename Condition>
  bool wait_for(Mutex& mutex, Seconds limit, Condition condition)
      AD_REQUIRES(mutex) AD_UNCHECKED_THREADS {
    const SteadyClock clock;
    const Seconds deadline = clock.now() + limit;
    for (;;) {
      if (condition()) return true;
      const Seconds left = deadline - clock.now();
      if (left <= Seconds{0}) return false;
      wait_for(mutex, left);
    }
  }

 private:
  // The mutex in the form that std::condition_variable knows, for one wait: held before and after.
  struct Adopted {
    explicit Adopted(Mutex& mutex) : of(mutex), held(mutex.mutex_, std::adopt_lock) {
      of.set_holder({});
    }
    ~Adopted() {
      held.release();
      of.set_holder(std::this_thread::get_id());
    }
    Adopted(const Adopted&) = delete;
    Adopted& operator=(const Adopted&) = delete;
    Mutex& of;
    mutable std::unique_lock<std::mutex> held;
  };

  std::condition_variable changed_;
};

}  // namespace autodist
