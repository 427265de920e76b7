// Programs of the build as processes of a test: what they print, how they end, what they started.

#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/happens.h"
#include "tests/outcome_of.h"

namespace autodist::testing_jobs {

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
    happens(
        [&] {
          int status = 0;
          if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
            status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
          }
          return status_.has_value();
        },
        limit);
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
    return happens([&] { return std::regex_search(err(), wanted); }, limit);
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

}  // namespace autodist::testing_jobs
