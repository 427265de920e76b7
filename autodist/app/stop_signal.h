// Signals as a wish to end in order: a flag that whoever works looks at.
//
// SIGINT, SIGTERM and SIGHUP (a terminal that was closed) are such wishes, and of a training
// SIGUSR1, too, which schedulers send before the time is up; SIGHUP stays ignored where it is
// (nohup).
// A signal that comes a second later or more ends the process as usual (but for
// watch_second_stop_signal()); sooner it is the same wish once more (timeout(1) sends each signal
// to the process and to its group).

#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "autodist/base/environment.h"
#include "autodist/base/error.h"
#include "autodist/base/mutex.h"

namespace autodist::app {

// From here on the signals set the flag, which lives as long as the process.
const std::atomic<bool>& watch_stop_signals(bool user_signal = false);

// After watch_stop_signals(), of a process that has something to save behind the job that it ends:
// a second signal sets this flag, and a third one, a second after that or later, ends the process.
const std::atomic<bool>& watch_second_stop_signal();

// The exit code of a verb that such a signal has left with a part of its work.
inline constexpr int kInterrupted = 130;

// "SIGTERM": the signal that set a flag last; its number; and whether a terminal sent it, to all
// processes of its foreground group.
std::string stop_signal();
int stop_signal_number();
bool stop_signal_is_the_terminals();
// Whether the process that started this rank sent it (it was told to stop, or lost another rank).
// Not the kernel's, when that process is gone.
bool stop_signal_is_the_starters(const Environment& environment);

// What to say of a rank that such a signal ended before the first step: the chief says what became
// of the job, of which an earlier start may have saved something.
std::string stopped_early(const Environment& environment, const std::string& by = stop_signal());

// A rank that a signal ends before the first step tells the chief that started it, which ends the
// others. A chief that ends for another reason stops its ranks, and is not to be stopped by them.
void tell_chief_to_stop(const Environment& environment);

// Of a signal that has a handler which takes its time (an interpreter's): another one of it, a
// second after the first or more, ends the process as usual. Those before come to the handler, and
// the first is a wish to EndsEarly, too. Until the signal gets another handler.
void end_at_second_signal(int number);

// In a process that helps a rank (it loads data): SIGTERM and SIGHUP end it where the rank's
// process, `rank`, sends them, which need not be its parent. One that comes to all processes of a
// job (a scheduler's, a closed terminal's) is for the rank to heed, which needs its helpers until
// the job has ended in order.
void end_by_alone(int rank);

// What who waits throws when the flag is set before anything has begun that is worth an end in
// order.
struct StoppedEarly : Error {
  StoppedEarly() : Error(ErrorCode::kPeersLost, "stopped by " + stop_signal()) {}
};

// Ends the process where nothing has begun that had to be ended in order, and who works does not
// look at the flag (a kernel that takes long): when the flag has been set for a while, `last_words`
// are said, by a thread of this object, and the process is gone, with exit code 0.
class EndsEarly {
 public:
  explicit EndsEarly(std::function<void()> last_words);
  ~EndsEarly();  // from here on nothing happens
  EndsEarly(const EndsEarly&) = delete;
  EndsEarly& operator=(const EndsEarly&) = delete;

 private:
  void watch(const std::function<void()>& last_words);

  Mutex mutex_;
  ConditionVariable changed_;
  bool over_ AD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace autodist::app
