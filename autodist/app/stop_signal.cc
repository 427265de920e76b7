#include "autodist/app/stop_signal.h"

#include <signal.h>
#include <time.h>

#include <cstdint>

namespace autodist::app {
namespace {

std::atomic<bool> wished{false};
std::atomic<std::int64_t> wished_at_ms{0};

extern "C" void on_stop_signal(int number) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ms = std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (!wished.exchange(true)) {
    wished_at_ms = now_ms;
  } else if (now_ms - wished_at_ms >= 1000) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
}

}  // namespace

const std::atomic<bool>& watch_stop_signals() {
  ::signal(SIGINT, on_stop_signal);
  ::signal(SIGTERM, on_stop_signal);
  if (::signal(SIGHUP, on_stop_signal) == SIG_IGN) ::signal(SIGHUP, SIG_IGN);
  return wished;
}

}  // namespace autodist::app
