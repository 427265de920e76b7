// The places where the engine waits between the queues of a device and the host, by name: so that a
// test can leave out one of them and see that it is missed.

#pragma once

#include <optional>

namespace autodist::exec {

enum class WaitSite {
  kGradient,    // the copying queue, for the op that completes a gradient
  kHostCopy,    // the host, for a gradient to be in its memory
  kLastRead,    // the copying queue, for the last op that reads a variable's old version
  kNewVersion,  // the computing queue, for a variable's new version
  kHostSource,  // the host, for its memory to be read before it is written again
  kSettled,     // the caller's queue, for all versions
  kHostRead,    // the host, for values that decide what it does next
};
constexpr int kWaitSites = 7;

// For tests, before anything runs: this one does not wait. Nothing: all of them do.
void leave_out(std::optional<WaitSite> site);
[[nodiscard]] bool is_left_out(WaitSite site);

}  // namespace autodist::exec
