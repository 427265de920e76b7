// What the world or the user got wrong, and how the process ends because of it.
//
// Libraries throw Error; main() and the Python binding each catch it once. What *we* got wrong is
// AD_CHECK (check.h). An ordinary negative answer (an infeasible candidate, a cache miss) is a
// value, not an error.

#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace autodist {

// The process exit codes of every program of the project.
enum class ErrorCode : int {
  kUsage = 2,           // arguments, files and models that cannot be used as given
  kEnvironment = 3,     // this machine lacks something: a device, a port, a directory, a library
  kInfeasible = 4,      // the plan cannot be carried out on this cluster
  kPeersLost = 5,       // another rank died, hung or left
  kCheckpoint = 6,      // a checkpoint is missing, damaged or does not fit the model
  kAuthentication = 7,  // a peer could not prove that it belongs to the job
  kTimeout = 124,       // a wait reached its limit
};
// A process that a signal has ended has this plus the signal's number as its exit code in shells.
inline constexpr int kBySignal = 128;

// Names and values from files may hold line breaks and control characters, which a message shows as
// escapes.
inline std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return line;
}

// One line: what, where, got, expected, hint. For example
//   partition: 'embed.weight' has 7 rows, cannot be split in 12 (plan.strategy, node 4). Use at
//   most 7.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message)
      : std::runtime_error(one_line(message)), code_(code) {}
  [[nodiscard]] ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// throw Error with a message formatted by {fmt}.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace autodist
