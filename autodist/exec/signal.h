// What the threads of one rank wait on: something changed, or the run has failed.

#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>

#include "autodist/base/error.h"
#include "autodist/base/units.h"

namespace autodist::exec {

class Signal {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // Guards whatever wait()'s conditions read.
  [[nodiscard]] Lock lock() { return Lock(mutex_); }

  void notify() { changed_.notify_all(); }

  // Ends all waits, present and future, with `reason`. The first reason stays.
  void fail(std::exception_ptr reason) {
    {
      const Lock lock(mutex_);
      if (!failure_) failure_ = std::move(reason);
    }
    changed_.notify_all();
  }

  // The same for an end that is none: a failure may still come, and resume() goes on waiting.
  void end(std::exception_ptr reason) {
    {
      const Lock lock(mutex_);
      if (!end_) end_ = std::move(reason);
    }
    changed_.notify_all();
  }
  void resume() {
    const Lock lock(mutex_);
    end_ = nullptr;
  }

  // Why fail() or end() was called, or nullptr.
  [[nodiscard]] std::exception_ptr failure() const {
    const Lock lock(mutex_);
    return failure_ ? failure_ : end_;
  }

  // Until condition() holds, which is called under the lock. Throws the failure, or after `limit`
  // Error(kTimeout) with the text of describe(), which is called under the lock.
  template <typename Condition, typename Describe>
  void wait(Lock& lock, Seconds limit, Condition condition, Describe describe) {
    if (!wait_for(lock, limit, condition)) throw Error(ErrorCode::kTimeout, describe());
  }

  // The same; false after `limit`.
  template <typename Condition>
  bool wait_for(Lock& lock, Seconds limit, Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                              std::chrono::duration<double>(limit.value));
    while (!condition()) {
      rethrow();
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !condition()) {
        rethrow();
        return false;
      }
    }
    return true;
  }

 private:
  void rethrow() const {  // REQUIRES: the lock
    if (failure_) std::rethrow_exception(failure_);
    if (end_) std::rethrow_exception(end_);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  std::exception_ptr end_;
};

}  // namespace autodist::exec
