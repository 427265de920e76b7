#include "autodist/job/arbiter.h"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "autodist/base/error.h"

namespace autodist::job {

GenerationEnd end_of_signal(int number) {
  for (const int asks : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGQUIT}) {
    if (number == asks) return GenerationEnd::kInOrder;
  }
  return GenerationEnd::kLost;
}

GenerationEnd end_of_exit(int code) {
  constexpr int kDefect = 70;  // EX_SOFTWARE
  switch (code) {
    case 0:
      return GenerationEnd::kInOrder;
    case static_cast<int>(ErrorCode::kEnvironment):
      return GenerationEnd::kEnvironment;
    case static_cast<int>(ErrorCode::kUsage):
    case static_cast<int>(ErrorCode::kInfeasible):
    case static_cast<int>(ErrorCode::kCheckpoint):
    case static_cast<int>(ErrorCode::kAuthentication):
    case kDefect:
      return GenerationEnd::kRefused;
    default:
      return code > kBySignal ? end_of_signal(code - kBySignal) : GenerationEnd::kLost;
  }
}

std::optional<Seconds> Arbiter::again(GenerationEnd end, std::optional<std::int64_t> steps) {
  constexpr double kLongest = 30;
  const bool got_further = steps && *steps > furthest_;
  if (got_further) {
    furthest_ = *steps;
    in_a_row_ = 0;
  }
  if (end == GenerationEnd::kInOrder || end == GenerationEnd::kRefused || furthest_ < 0) {
    return std::nullopt;
  }
  // A machine that is not there may come back; one that goes while the job trains is a loss.
  if (end == GenerationEnd::kEnvironment && steps) return std::nullopt;
  if (in_a_row_ == restarts_) {
    gave_up_ = true;
    return std::nullopt;
  }
  ++in_a_row_;
  if (in_a_row_ == 1) return Seconds{0};
  return Seconds{std::min(std::exp2(static_cast<double>(in_a_row_) - 2), kLongest)};
}

}  // namespace autodist::job
