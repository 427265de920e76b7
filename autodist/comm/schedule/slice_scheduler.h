// Which slice goes next to one destination.
//
// Gradients complete back to front, but the next forward pass needs parameters front to back. A
// SliceScheduler takes transfers as they come and releases them in the order in which they will be
// needed (P3, Jayarajan et al. 2019, section 4). It never lets more than a window of bytes be on
// their way: what a socket already holds cannot be overtaken any more, so without the window a
// priority means nothing (ByteScheduler, Peng et al. 2019, section 4.2, calls it credit).
//
// A pure data structure: no clock, no socket, no thread. The transport and the simulator drive the
// same code (through NicScheduler), so they cannot disagree about the order.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autodist/base/id.h"
#include "autodist/base/units.h"

namespace autodist::comm {

// The driver's number for a transfer: a slice on its way to one destination.
using TransferId = Id<struct TransferTag>;

struct Transfer {
  TransferId id;
  Bytes size;
  std::uint64_t step = 0;  // an earlier step leaves first, or late slices would wait for ever
  Seconds needed;          // first use after the start of the next step; smaller leaves first
};

class SliceScheduler {
 public:
  // Lets at most `window` bytes be in flight, or a single transfer if that one is larger.
  explicit SliceScheduler(Bytes window) : window_(window) {}

  // Enters a transfer. Those of one step that are needed at the same time leave in the order in
  // which they came.
  void add(const Transfer& transfer);

  // The transfer that would leave now; nullptr while none waits or the window has no room for the
  // most urgent one. (A smaller one does not slip past it: large slices must not starve.)
  [[nodiscard]] const Transfer* ready() const;

  // Takes what ready() shows; its bytes count as in flight from here on.
  [[nodiscard]] std::optional<Transfer> next();

  // The destination has received `size` bytes. REQUIRES: size <= in_flight().
  void acknowledge(Bytes size);

  [[nodiscard]] Bytes in_flight() const { return in_flight_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Entry {
    Transfer transfer;
    std::uint32_t next = kNone;  // of its run; of the unused ones
  };
  // Transfers that came one after another for the same step and time, as the slices of a variable
  // do: a list through entries_. The heap orders runs, which are far fewer than transfers.
  struct Run {
    std::uint64_t step = 0;
    double needed = 0;
    std::uint64_t arrival = 0;  // every transfer of an equal time in an earlier run came before
    std::uint32_t first = kNone;

    // A heap's top is the largest: what is needed first.
    friend bool operator<(const Run& a, const Run& b) {
      return a.step != b.step       ? a.step > b.step
             : a.needed != b.needed ? a.needed > b.needed
                                    : a.arrival > b.arrival;
    }
  };

  std::uint32_t new_entry(const Transfer& transfer);

  Bytes window_;
  Bytes in_flight_{0};
  std::uint64_t arrivals_ = 0;
  std::vector<Run> runs_;
  std::vector<Entry> entries_;
  std::uint32_t unused_ = kNone;
  std::uint32_t latest_ = kNone;  // the end of the run that the last transfer entered
};

}  // namespace autodist::comm
