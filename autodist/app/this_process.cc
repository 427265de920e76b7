#include "autodist/app/this_process.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>

#include "autodist/base/mutex.h"
#include "autodist/base/text.h"

namespace autodist::app {
namespace {

// A line of progress may stand there, of this process or another one: it is erased.
std::string line_begin() { return ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : ""; }

// Every rank's lines, whole, on standard error.
job::StartedRanks::Output prefixed_lines() {
  auto mutex = std::make_shared<Mutex>();
  return [mutex](std::uint32_t rank, const std::string& line) {
    const MutexLock lock(*mutex);
    // In one write: others of this process write there without the mutex.
    std::cerr << line_begin() + "[rank " + std::to_string(rank) + "] " + line + "\n";
  };
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::vector<std::string> process_variables() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

bool is_on_path(const std::string& program, const Environment& environment) {
  for (const std::string& folder : split(environment("PATH").value_or(""), ':')) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

void say_line(const std::string& line) { std::cerr << line_begin() + "autodist: " + line + "\n"; }

job::ProcessContext this_process() { return {process_variables(), say_line, prefixed_lines()}; }

}  // namespace autodist::app
