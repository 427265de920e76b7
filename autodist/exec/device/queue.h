// What the engine sees of a device: queues, whose work is done in order and some time after the
// call that hands it in, and points in them to wait for. A CPU has done its work when the call
// returns, so there all of this does nothing.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>

#include "autodist/exec/device/wait_site.h"

namespace autodist::exec {

// A point in a queue: reached once all that was handed in before it is done. Any thread.
class Mark {
 public:
  Mark() = default;  // reached
  [[nodiscard]] bool reached(WaitSite site) const;
  // For whoever only chooses an order of work by it, and waits for the mark all the same.
  [[nodiscard]] bool seems_reached() const;
  // Blocks the calling thread, which sleeps in between and calls `look`: what that throws ends it.
  void block_host(WaitSite site, const std::function<void()>& look = {}) const;

 private:
  friend class Queue;
  std::shared_ptr<const c10::Event> event_;
};

// Any thread.
class Queue {
 public:
  // The one that the calling thread's kernels go to.
  static Queue current(torch::Device device);
  // Another one, with priority, for copies.
  static Queue for_copies(torch::Device device);

  // A mark after all that was handed in so far.
  [[nodiscard]] Mark record() const;
  // What is handed in later begins when the mark is reached.
  void wait_for(const Mark& mark, WaitSite site) const;

  // While it lives, the calling thread's kernels and copies go to the queue.
  class Scope {
   public:
    explicit Scope(const Queue& queue) {
      if (queue.stream_) guard_.emplace(*queue.stream_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::optional<c10::StreamGuard> guard_;
  };

 private:
  explicit Queue(std::optional<c10::Stream> stream) : stream_(stream) {}

  std::optional<c10::Stream> stream_;  // nothing on a CPU
};

}  // namespace autodist::exec
