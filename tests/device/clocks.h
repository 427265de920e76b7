// Which access happens before which: vector clocks over the queues of the test device. A queue's
// entry counts what was handed to it; a clock knows, of every queue, up to which op everything is
// done before whatever has this clock.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace autodist::test_device {

constexpr int kQueues = 32;

using Clock = std::array<std::uint64_t, kQueues>;

inline void join(Clock& clock, const Clock& other) {
  for (int i = 0; i < kQueues; ++i) clock[i] = std::max(clock[i], other[i]);
}

struct Access {
  int queue = -1;
  std::uint64_t time = 0;
  std::string op;
  bool to_host = false;  // a copy, for which threads of the host wait in turn for each other

  [[nodiscard]] bool before(const Clock& clock) const { return queue < 0 || time <= clock[queue]; }
};

// What was done to a block of memory since it was handed out.
class Accesses {
 public:
  // An access by a queue that has this clock now: the earlier one that nothing orders before it.
  std::optional<Access> read(const Access& access, const Clock& clock) {
    Access& last = reads_[access.queue];
    last = access;
    return write_.before(clock) ? std::nullopt : std::optional(write_);
  }
  // `hosts`: also what any thread of the host has waited for.
  std::optional<Access> write(const Access& access, const Clock& clock, const Clock& hosts) {
    std::optional<Access> unordered;
    if (!write_.before(clock)) unordered = write_;
    for (const Access& read : reads_) {
      if (!read.before(read.to_host ? hosts : clock)) unordered = read;
    }
    reads_.fill({});
    write_ = access;
    return unordered;
  }

  [[nodiscard]] const std::string& written_by() const { return write_.op; }

 private:
  Access write_;
  std::array<Access, kQueues> reads_;
};

}  // namespace autodist::test_device
