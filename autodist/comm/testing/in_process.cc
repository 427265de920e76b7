#include "autodist/comm/testing/in_process.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/mutex.h"

namespace autodist::comm {

// What has been sent to one rank, in the order of arrival times; equal times keep their order.
class InProcessHub::Mailbox {
 public:
  void put(Frame frame, Seconds due) {
    {
      const MutexLock lock(mutex_);
      frames_.emplace(due.value, std::move(frame));
    }
    arrived_.notify_one();
  }

  std::optional<Frame> take(Seconds timeout) {
    const double until = clock_.now().value + timeout.value;
    const MutexLock lock(mutex_);
    for (;;) {
      const double now = clock_.now().value;
      const bool waits = !frames_.empty() && !silenced_;
      if (waits && frames_.begin()->first <= now) {
        Frame frame = std::move(frames_.begin()->second);
        frames_.erase(frames_.begin());
        return frame;
      }
      if (now >= until) return std::nullopt;
      const double wake = waits ? std::min(until, frames_.begin()->first) : until;
      arrived_.wait_for(mutex_, Seconds{wake - now});
    }
  }

  void silence() {
    const MutexLock lock(mutex_);
    silenced_ = true;
    frames_.clear();
  }

 private:
  SteadyClock clock_;
  Mutex mutex_;
  ConditionVariable arrived_;
  std::multimap<double, Frame> frames_ AD_GUARDED_BY(mutex_);
  bool silenced_ AD_GUARDED_BY(mutex_) = false;
};

class InProcessHub::State {
 public:
  explicit State(RankNumber size) : mailboxes_(size), dead_(size, false), connected_(size, false) {}

  [[nodiscard]] RankNumber size() const { return static_cast<RankNumber>(mailboxes_.size()); }
  Mailbox& mailbox(RankNumber rank) { return mailboxes_[rank]; }

  void connect(RankNumber rank) {
    const MutexLock lock(mutex_);
    AD_CHECK(rank < size() && !connected_[rank]) << "rank " << rank << " of " << size();
    connected_[rank] = true;
  }

  void deliver(RankNumber to, const Frame& frame) {
    for (const Seconds delay : fate_of(to, frame)) {
      mailboxes_[to].put(frame, clock_.now() + delay);
    }
  }

  void bend(Fate fate) {
    const MutexLock lock(mutex_);
    fate_ = std::make_shared<const Fate>(std::move(fate));
  }

  void kill(RankNumber rank) {
    {
      const MutexLock lock(mutex_);
      dead_[rank] = true;
    }
    mailboxes_[rank].silence();
  }

 private:
  std::vector<Seconds> fate_of(RankNumber to, const Frame& frame) {
    std::shared_ptr<const Fate> fate;
    {
      const MutexLock lock(mutex_);
      if (dead_[frame.header.from] || dead_[to]) return {};
      fate = fate_;
    }
    return fate ? (*fate)(to, frame) : std::vector<Seconds>{Seconds{0}};
  }

  SteadyClock clock_;
  std::deque<Mailbox> mailboxes_;
  Mutex mutex_;
  std::vector<bool> dead_ AD_GUARDED_BY(mutex_);
  std::vector<bool> connected_ AD_GUARDED_BY(mutex_);
  std::shared_ptr<const Fate> fate_ AD_GUARDED_BY(mutex_);
};

class InProcessHub::Endpoint final : public Transport {
 public:
  Endpoint(std::shared_ptr<State> state, RankNumber self) : state_(std::move(state)), self_(self) {}

  [[nodiscard]] RankNumber self() const override { return self_; }
  [[nodiscard]] RankNumber size() const override { return state_->size(); }
  [[nodiscard]] std::string describe(RankNumber rank) const override {
    return "rank " + std::to_string(rank) + " (in this process)";
  }

  void send(RankNumber to, Frame frame) override {
    AD_CHECK(to < size() && to != self_) << "to " << to << " from " << self_;
    AD_CHECK(!closed_) << "send after close";
    frame.header.from = self_;
    state_->deliver(to, frame);
  }

  void close(Seconds) override { closed_ = true; }

 protected:
  std::optional<Frame> receive_next(Seconds timeout) override {
    return state_->mailbox(self_).take(timeout);
  }

 private:
  std::shared_ptr<State> state_;
  RankNumber self_;
  bool closed_ = false;
};

InProcessHub::InProcessHub(RankNumber size) : state_(std::make_shared<State>(size)) {
  AD_CHECK(size > 0) << "a job has at least one rank";
}

std::unique_ptr<Transport> InProcessHub::connect(RankNumber rank) {
  state_->connect(rank);
  return std::make_unique<Endpoint>(state_, rank);
}

void InProcessHub::bend(Fate fate) { state_->bend(std::move(fate)); }

void InProcessHub::kill(RankNumber rank) {
  AD_CHECK(rank < state_->size()) << "rank " << rank;
  state_->kill(rank);
}

}  // namespace autodist::comm
