// Which slice leaves a rank next, over all destinations.
//
// Destinations share one network card: with independent queues an urgent slice to one rank would
// compete equally with idle-time slices to the others. A NicScheduler holds one SliceScheduler per
// destination and releases the most urgent transfer among the destinations whose window has room,
// while the bytes in flight over all of them stay within the card's budget.
//
// Order: (step, needed, distance, arrival), where distance is (destination - self) modulo the
// number of ranks: equal destinations are visited in the order self+1, self+2, …, so that ranks
// with the same work do not all turn to rank 0 at once.
//
// A pure data structure, like SliceScheduler. O(log destinations) per call.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/comm/schedule/slice_scheduler.h"

namespace autodist::comm {

struct Departure {
  std::uint32_t to = 0;
  Transfer transfer;
};

class NicScheduler {
 public:
  // `window` bounds what is in flight to one destination and `budget` what is in flight at all; a
  // single transfer larger than either leaves when nothing else is on its way. A budget of less
  // than two windows lets one slow destination hold up the others. REQUIRES: self < ranks.
  NicScheduler(std::uint32_t self, std::uint32_t ranks, Bytes window, Bytes budget);

  // REQUIRES: to < ranks, to != self.
  void add(std::uint32_t to, const Transfer& transfer);

  // The transfer to send now; nothing while none waits, no window has room, or the budget has no
  // room for the most urgent.
  [[nodiscard]] std::optional<Departure> next();

  // `from` has received `size` bytes. REQUIRES: size <= in_flight(from).
  void acknowledge(std::uint32_t from, Bytes size);

  [[nodiscard]] Bytes in_flight() const { return in_flight_; }

 private:
  using Distance = std::uint32_t;
  using Urgency = std::tuple<std::uint64_t, double, Distance>;  // (step, needed, distance)
  static constexpr std::uint32_t kNotListed = ~std::uint32_t{0};
  struct Destination {
    explicit Destination(Bytes window) : queue(window) {}
    SliceScheduler queue;
    Distance distance = 0;
    Urgency urgency;                   // of its most urgent transfer, while it is listed
    std::uint32_t place = kNotListed;  // in ready_
  };

  [[nodiscard]] Distance distance(std::uint32_t rank) const;
  [[nodiscard]] Destination* find(Distance distance) const;
  Destination& find_or_make(Distance distance);
  // Puts a destination where its most urgent transfer belongs in ready_, or takes it out.
  void list(Destination& destination);
  void place(Destination* destination, std::uint32_t at);
  void raise(Destination* destination, std::uint32_t at);
  void sink(Destination* destination, std::uint32_t at);

  std::uint32_t self_;
  std::uint32_t ranks_;
  Bytes window_;
  Bytes budget_;
  Bytes in_flight_{0};
  // By distance; nullptr for those that were never sent to.
  std::vector<std::unique_ptr<Destination>> destinations_;
  std::vector<Destination*> ready_;  // a heap of those whose window has room, most urgent first
};

}  // namespace autodist::comm
