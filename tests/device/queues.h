// The queues of the test device: threads that run what they are handed, late. And who saw what of
// them: the clocks of queues, events and host threads.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/clocks.h"
#include "tests/device/memory.h"
#include "tests/device/test_device.h"

namespace autodist::test_device {

// A point in a queue.
struct Event {
  int queue = 0;
  std::uint64_t time = 0;
  Clock clock{};
};

// What an op touches, by any address within.
struct Touched {
  std::vector<const void*> reads;
  std::vector<const void*> writes;
};

// Any thread.
class Queues {
 public:
  static Queues& instance();

  void begin(const Schedule& schedule);

  [[nodiscard]] int current() const;
  int exchange_current(int queue);
  int next_of_pool();

  // What was handed in by one thread, and kept.
  struct Kept {
    std::string op;
    Touched touched;
    std::function<void()> run;
  };
  // What the calling thread hands in from now on is kept in `list`, and memory is of a pool's;
  // null: no longer.
  void keep(std::vector<Kept>* list, int pool);
  int new_pool();
  void hand_in_again(const std::vector<Kept>& list);

  // The op runs later, in its turn.
  void hand_in(int queue, std::string op, const Touched& touched, std::function<void()> run);
  // The host waits until all of a queue is done, and knows it.
  void drain(int queue);

  Event record(int queue);
  void block(const Event& event, int queue);
  bool query(const Event& event);

  void* allocate(std::size_t bytes, bool pinned);
  void free(void* block);
  [[nodiscard]] bool is_pinned(const void* address);
  // Where a kernel finds memory of the device, or pinned memory; other memory is where it is.
  [[nodiscard]] std::byte* for_kernels(void* address);

  void report(std::string text);
  std::vector<std::string> reports();
  Use use();

 private:
  struct Queue {
    std::condition_variable work;
    std::deque<std::function<void()>> waiting;
    std::uint64_t handed_in = 0;
    std::uint64_t done = 0;
    Clock clock{};
    std::mt19937_64 random;
    std::thread thread;
  };
  // Pinned memory that a copy under way reads or writes, and that the host cannot touch as it likes
  // before it knows that the copy is done.
  struct Closed {
    const void* address;
    Access by;
    bool writes;
  };

  Queues();
  // Also ordered after what `known` says.
  void hand_in(int queue, std::string op, const Touched& touched, std::function<void()> run,
               const Clock& known);
  void run(int number);
  void pause(Queue& queue, std::unique_lock<std::mutex>& lock);
  void note(const Touched& touched, const Access& access, const Clock& clock);
  void learn(const Clock& clock);
  void open(const Clock& clock);
  Block* block_of(const void* address);

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Queue> queues_;
  int pool_ = 0;
  int memory_pools_ = kQueues;  // their numbers follow those of the queues
  Schedule schedule_;
  Memory memory_{false};
  Memory pinned_{true};
  std::vector<Closed> closed_;
  std::set<std::string> reports_;
  Clock all_hosts_{};  // what any thread of the host knows to be done
  std::int64_t ops_ = 0;
};

}  // namespace autodist::test_device
