// Waits for what a busy machine does in its own time. A limit is only reached where a test fails.

#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace autodist::testing_jobs {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlower = 10;
#else
inline constexpr int kSlower = 1;
#endif

// Whether it comes true within the limit, which is longer under a sanitizer.
inline bool happens(const std::function<bool()>& what,
                    std::chrono::seconds limit = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + kSlower * limit;
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// Whether a process, which need not be a child, ends within the limit. A zombie, for which nobody
// has waited, has ended.
inline bool is_gone(pid_t pid, std::chrono::seconds limit = std::chrono::seconds(15)) {
  return happens(
      [pid] {
        std::ifstream stat(fmt::format("/proc/{}/stat", pid));
        std::string line;
        return !std::getline(stat, line) || line.find(") Z ") != std::string::npos;
      },
      limit);
}

}  // namespace autodist::testing_jobs
