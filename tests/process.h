// Programs of the build as processes of a test: what they print, how they end, what they started.

#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/outcome_of.h"

namespace autodist::testing_jobs {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlower = 10;
#else
inline constexpr int kSlower = 1;
#endif

inline const std::string kPrograms = AUTODIST_PROGRAMS;           // the product's
inline const std::string kTestPrograms = AUTODIST_TEST_PROGRAMS;  // jobs that tests start

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A process in a group of its own, its output in files.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const Scratch& scratch,
          const std::vector<std::string>& environment = {})
      : out_(scratch / "stdout"), err_(scratch / "stderr") {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    ::dup2(::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    ::dup2(::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    for (const std::string& each : environment) ::putenv(const_cast<char*>(each.c_str()));
    std::vector<char*> raw;
    for (const std::string& each : arguments) raw.push_back(const_cast<char*>(each.c_str()));
    raw.push_back(nullptr);
    ::execv(raw[0], raw.data());
    ::_exit(127);
  }
  ~Process() {
    if (!status_) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Exit code, 128 + signal, or -1 where it still runs after the limit.
  int wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + kSlower * limit;
    while (!status_ && std::chrono::steady_clock::now() < end) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
    return status_.value_or(-1);
  }

  [[nodiscard]] std::string out() const { return slurp(out_); }
  [[nodiscard]] std::string err() const { return slurp(err_); }
  [[nodiscard]] pid_t pid() const { return pid_; }

  // Processes that it started and that still run: ranks, since children die with their parents.
  [[nodiscard]] std::vector<pid_t> children() const {
    std::istringstream text(
        slurp("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children"));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; text >> pid;) pids.push_back(pid);
    return pids;
  }

  // Waits until what it wrote on standard error matches.
  [[nodiscard]] bool says(const std::string& pattern,
                          std::chrono::seconds limit = std::chrono::seconds(60)) const {
    const std::regex wanted(pattern);
    const auto end = std::chrono::steady_clock::now() + kSlower * limit;
    while (std::chrono::steady_clock::now() < end) {
      if (std::regex_search(err(), wanted)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  std::string out_, err_;
  pid_t pid_ = 0;
  std::optional<int> status_;
};

inline std::vector<std::string> autodist(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kPrograms + "/autodist");
  return arguments;
}

// Whether a process, which need not be a child, is gone within three seconds.
inline bool is_gone(pid_t pid, int looks = 300) {
  for (int i = 0; i < looks; ++i) {
    const bool zombie =
        slurp("/proc/" + std::to_string(pid) + "/stat").find(") Z ") != std::string::npos;
    if (::kill(pid, 0) != 0 || zombie) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Whether it comes true within half a minute.
inline bool happens(const std::function<bool()>& what) {
  for (int i = 0; i < 3000 * kSlower; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace autodist::testing_jobs
