#include "autodist/app/stop_signal.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "autodist/job/job_memory.h"
#include "autodist/job/place.h"

namespace autodist::app {
namespace {

constexpr Seconds kLookForWish{0.05};
constexpr Seconds kGraceOfWish{0.7};  // for who looks at the flag

std::atomic<bool> wished{false};
std::atomic<bool> heeds_second{false};
std::atomic<bool> wished_twice{false};
std::atomic<int> wished_by{0};
std::atomic<std::int64_t> wished_from{0};  // a process
std::atomic<bool> wished_by_terminal{false};
std::atomic<std::int64_t> wished_at_ms{0};

// What the signals of a handler in whose place ours is are passed on to.
std::atomic<void (*)(int)> passed_to{nullptr};
std::atomic<std::int64_t> passed_at_ms{0};

std::int64_t now_in_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void note_wish(int number, const siginfo_t& about, std::int64_t now_ms) {
  wished_by = number;
  wished_from = about.si_code == SI_USER ? about.si_pid : 0;
  wished_by_terminal = about.si_code == SI_KERNEL;
  wished_at_ms = now_ms;
  wished = true;
}

extern "C" void on_passed_signal(int number, siginfo_t* about, void* /*context*/) {
  const std::int64_t now_ms = now_in_ms();
  std::int64_t first_ms = 0;
  if (!passed_at_ms.compare_exchange_strong(first_ms, now_ms) && now_ms - first_ms >= 1000) {
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  if (first_ms == 0) note_wish(number, *about, now_ms);
  if (const auto handler = passed_to.load()) handler(number);
}

// As PyTorch's loaders do, whose parent takes a death by a signal for an accident.
std::atomic<pid_t> helped{0};

extern "C" void on_signal_of_a_helper(int /*number*/, siginfo_t* about, void* /*context*/) {
  if (about->si_pid == helped) ::_exit(EXIT_SUCCESS);
}

extern "C" void on_stop_signal(int number, siginfo_t* about, void* /*context*/) {
  const std::int64_t now_ms = now_in_ms();
  if (!wished) {
    note_wish(number, *about, now_ms);
  } else if (now_ms - wished_at_ms < 1000) {
    return;
  } else if (heeds_second && !wished_twice) {
    note_wish(number, *about, now_ms);
    wished_twice = true;
  } else {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
}

}  // namespace

const std::atomic<bool>& watch_stop_signals(bool user_signal) {
  struct sigaction watch {};
  watch.sa_sigaction = on_stop_signal;
  watch.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(SIGINT, &watch, nullptr);
  ::sigaction(SIGTERM, &watch, nullptr);
  struct sigaction before {};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &watch, nullptr);
  if (user_signal) ::sigaction(SIGUSR1, &watch, nullptr);
  return wished;
}

const std::atomic<bool>& watch_second_stop_signal() {
  heeds_second = true;
  return wished_twice;
}

std::string stop_signal() {
  const char* name = ::sigabbrev_np(wished_by);
  return name == nullptr ? "a signal" : std::string("SIG") + name;
}

int stop_signal_number() { return wished_by; }

bool stop_signal_is_the_terminals() { return wished_by_terminal; }

bool stop_signal_is_the_starters(const Environment& environment) {
  return environment("AUTODIST_RANK").has_value() && wished_from == ::getppid();
}

void end_at_second_signal(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  const bool handled = (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler != SIG_DFL &&
                       action.sa_handler != SIG_IGN;
  if (!handled) return;
  passed_to = action.sa_handler;
  passed_at_ms = 0;
  action.sa_sigaction = on_passed_signal;
  action.sa_flags |= SA_SIGINFO;
  ::sigaction(number, &action, nullptr);
}

void end_by_alone(int rank) {
  helped = rank;
  struct sigaction action {};
  action.sa_sigaction = on_signal_of_a_helper;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGHUP, &action, nullptr);
}

std::string stopped_early(const Environment& environment, const std::string& by) {
  const std::string stopped = "stopped by " + by + " before the first step";
  if (!job::is_rank_0(environment)) return stopped;
  const auto memory = job::JobMemory::inherited(environment);
  const auto progress = memory ? memory->progress() : job::JobMemory::Progress();
  if (progress.saved >= 0) {
    return stopped + " since it was started again: what it had saved is as it was";
  }
  return stopped +
         (progress.kept >= 0 ? " since it was started again" : ": nothing was trained or saved");
}

void tell_chief_to_stop(const Environment& environment) {
  const auto chief = environment("AUTODIST_STARTED_BY");
  const pid_t parent = ::getppid();
  const bool is_ours = chief && *chief == std::to_string(parent);
  if (is_ours && wished_from != parent) ::kill(parent, SIGTERM);
}

EndsEarly::EndsEarly(std::function<void()> last_words)
    : thread_([this, words = std::move(last_words)] { watch(words); }) {}

EndsEarly::~EndsEarly() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EndsEarly::watch(const std::function<void()>& last_words) {
  const auto is_over = [this]() AD_REQUIRES(mutex_) { return over_; };
  const MutexLock lock(mutex_);
  while (!changed_.wait_for(mutex_, kLookForWish, is_over)) {
    if (!wished) continue;
    if (changed_.wait_for(mutex_, kGraceOfWish, is_over)) return;
    last_words();
    std::cout.flush();
    std::cerr.flush();
    ::_exit(0);  // no destructors: others still compute with what they would destroy
  }
}

}  // namespace autodist::app
