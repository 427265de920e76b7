// What Python holds of a job and of its session: handles that can be closed, and that wait without
// the interpreter's lock.
//
// A room's own header: takes torch along.

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "autodist/app/python/bindings.h"
#include "autodist/app/torch/session.h"
#include "autodist/base/error.h"

namespace autodist::python {

// The process that made a handle. A fork of it (a worker that loads data) has a copy whose threads
// and sockets are not its own, and leaves that alone.
class OwnProcess {
 public:
  [[nodiscard]] bool is_this() const { return ::getpid() == pid_; }
  // is_this(); a fork lets go of its copy, and leaves alone what it points to.
  template <typename T>
  [[nodiscard]] bool keeps(std::unique_ptr<T>& made) const {
    if (!is_this()) static_cast<void>(made.release());
    return is_this();
  }

 private:
  pid_t pid_ = ::getpid();
};

class JobHandle {
 public:
  JobHandle(const std::string& cluster, JobOptions options);
  // Leaves the job, if no session has taken it over. REQUIRES: the interpreter's lock.
  ~JobHandle();
  JobHandle(const JobHandle&) = delete;
  JobHandle& operator=(const JobHandle&) = delete;

  // The job, for its one session. Throws Error(kUsage) the second time.
  AutoDist& take();
  [[nodiscard]] const AutoDist& job() const { return *job_; }

 private:
  OwnProcess process_;
  std::unique_ptr<AutoDist> job_;
  bool taken_ = false;
};

class SessionHandle {
 public:
  explicit SessionHandle(Session session)
      : session_(std::make_unique<Session>(std::move(session))) {}
  ~SessionHandle() { close(); }
  SessionHandle(const SessionHandle&) = delete;
  SessionHandle& operator=(const SessionHandle&) = delete;

  // Leaves the job, and tells the others why where there is a reason. REQUIRES: the interpreter's
  // lock.
  void close(const std::string& reason = "") {
    if (!session_ || !process_.keeps(session_)) return;
    const py::gil_scoped_release unlocked;
    if (!finished_) session_->leave(reason);
    session_.reset();
  }

  // Calls function(session) without the interpreter's lock. Throws Error(kUsage) when it is closed,
  // or when another thread, or the step itself, is in a call.
  template <typename Function>
  auto call(Function function) {
    check_open();
    if (finished_) fail(ErrorCode::kUsage, "session: the job has ended. Make another one.");
    if (busy_.exchange(true)) {
      fail(ErrorCode::kUsage,
           "session: called from a second thread, or from inside of the step; calls take turns. "
           "Call it after the one under way.");
    }
    const Idle idle{busy_};
    const py::gil_scoped_release unlocked;
    return function(*session_);
  }

  // Ends the job in order; what is left are the answers of get(). It has ended, too, where a
  // checkpoint is missing at its end (kCheckpoint).
  void finish() {
    try {
      call([](Session& session) { session.finish(); });
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCheckpoint) finished_ = true;
      throw;
    }
    finished_ = true;
  }

  [[nodiscard]] bool is_open() const { return session_ != nullptr; }

  // The interpreter ends, with an exit code that only the system will know: what is left to do is
  // done by then, without the interpreter. In order after 0; else the process ends at once, and the
  // others notice.
  void end_with_process();

  // Also by a handler of signals while the session is in a call.
  void wish_for_the_end() {
    check_open();
    if (!finished_) session_->wish_for_the_end();
  }

  void verify_next() {
    check_open();
    session_->verify_next();
  }

  // For what neither waits nor computes.
  [[nodiscard]] const Session& get() const {
    check_open();
    return *session_;
  }

 private:
  void check_open() const {
    if (!session_) fail(ErrorCode::kUsage, "session: it is closed. Make another one.");
    if (!process_.is_this()) {
      fail(ErrorCode::kUsage, "session: it is that of another process. Use it where it was made.");
    }
  }

  struct Idle {
    std::atomic<bool>& busy;
    ~Idle() { busy = false; }
  };

  OwnProcess process_;
  std::unique_ptr<Session> session_;
  bool finished_ = false;
  std::atomic<bool> busy_{false};
};

}  // namespace autodist::python
