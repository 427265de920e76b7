// Events in the order of time; equal times in an order that knows no absolute node number.
//
// An event's order among equals is (distance of the node that caused it from the node that it
// happens at, that node's own count of events): equal nodes number their events equally, so nodes
// that cannot be told apart stay so, and simulating one of them gives the same bits as simulating
// all (docs/simulator.md).

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace autodist::sim {

enum class EventKind : std::uint8_t {
  kComputed,      // the compute stream's current segment ends
  kStreamed,      // the collective stream's current work ends
  kJobDone,       // the owner's current job ends
  kStaged,        // a gradient is in the host's memory
  kHop,           // a message's head reaches a switch
  kHead,          // a message's head reaches its node
  kDelivered,     // a message is there whole
  kAcknowledged,  // its sender knows
  kReduced,       // a library collective ends
  kResumed,       // a rank may begin a further step
};

// Added to the order of events that no single rank causes: they come after those that one does.
constexpr std::uint64_t kCommon = std::uint64_t{0xFFFFFF} << 40;

struct Event {
  double time = 0;
  std::uint64_t order = 0;  // distance << 40 | count
  EventKind kind = EventKind::kComputed;
  std::uint32_t place = 0;  // rank, or uplink for kHop
  std::uint64_t argument = 0;

  friend bool operator<(const Event& a, const Event& b) {
    return a.time != b.time     ? a.time < b.time
           : a.order != b.order ? a.order < b.order
                                : a.place < b.place;
  }
};

// A heap of four children per node: half the levels of a binary one, and the children share a cache
// line.
class EventQueue {
 public:
  [[nodiscard]] bool empty() const { return heap_.empty(); }

  void push(const Event& event) {
    std::size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!(event < heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }

  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return first;
  }

 private:
  void sink(const Event& event) {
    const std::size_t size = heap_.size();
    std::size_t at = 0;
    for (std::size_t child = 1; child < size; child = 4 * at + 1) {
      const std::size_t end = std::min(child + 4, size);
      std::size_t least = child;
      for (std::size_t i = child + 1; i < end; ++i) {
        if (heap_[i] < heap_[least]) least = i;
      }
      if (!(heap_[least] < event)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace autodist::sim
