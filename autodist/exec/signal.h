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

  // Why fail() was called, or nullptr.
  [[nodiscard]] std::exception_ptr failure() const {
    const Lock lock(mutex_);
    return failure_;
  }

  // Until condition() holds, which is called under the lock. Throws the failure, or after `limit`
  // Error(kTimeout) with the text of describe(), which is called under the lock.
  template <typename Condition, typename Describe>
  void wait(Lock& lock, Seconds limit, Condition condition, Describe describe) {
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                              std::chrono::duration<double>(limit.value));
    while (!condition()) {
      if (failure_) std::rethrow_exception(failure_);
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !condition()) {
        if (failure_) std::rethrow_exception(failure_);
        throw Error(ErrorCode::kTimeout, describe());
      }
    }
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
};

}  // namespace autodist::exec
