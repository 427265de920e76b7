// No thread of its own: whoever waits for a frame while nobody else does reads the transport, and
// hands what is not its own to those it belongs to.

#include "autodist/comm/channels.h"

#include <deque>
#include <utility>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/mutex.h"

namespace autodist::comm {

class Channels::Channel final : public Transport {
 public:
  Channel(const Transport& transport, Shared& shared, std::uint16_t number)
      : transport_(transport), shared_(shared), number_(number) {}

  [[nodiscard]] RankNumber self() const override { return transport_.self(); }
  [[nodiscard]] RankNumber size() const override { return transport_.size(); }
  [[nodiscard]] std::string describe(RankNumber rank) const override {
    return transport_.describe(rank);
  }
  void send(RankNumber to, Frame frame) override;
  void close(Seconds) override {}
  using Transport::take_given_back;

 protected:
  std::optional<Frame> receive_next(Seconds timeout) override;

 private:
  const Transport& transport_;  // that all channels share
  Shared& shared_;
  std::uint16_t number_;
};

class Channels::Shared {
 public:
  Shared(Transport& transport, std::uint16_t count) : transport_(transport), inboxes_(count) {
    for (std::uint16_t i = 0; i < count; ++i) {
      channels_.push_back(std::make_unique<Channel>(transport, *this, i));
    }
  }
  // What nobody has read is for later readers of the transport, in its order.
  ~Shared() {
    std::vector<Frame> unread;
    const auto add = [&](std::deque<Frame> frames) {
      for (Frame& frame : frames) {
        if (frame.header.kind != FrameKind::kAlive) unread.push_back(std::move(frame));
      }
    };
    add(std::move(others_));
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      add(channels_[i]->take_given_back());
      add(std::move(inboxes_[i]));
    }
    transport_.give_back(std::move(unread));
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  Channel& channel(std::uint16_t number) {
    AD_CHECK(number < channels_.size()) << "channel " << number;
    return *channels_[number];
  }

  void send(RankNumber to, Frame frame) {
    const MutexLock one_at_a_time(sending_);
    transport_.send(to, std::move(frame));
  }

  std::optional<Frame> receive(std::uint16_t channel, Seconds timeout) {
    const Seconds end = clock_.now() + timeout;
    MutexLock lock(mutex_);
    std::deque<Frame>& inbox = inboxes_[channel];
    for (;;) {
      if (!inbox.empty()) {
        Frame frame = std::move(inbox.front());
        inbox.pop_front();
        return frame;
      }
      const Seconds left = end - clock_.now();
      if (left < Seconds{0}) return std::nullopt;
      if (reading_) {
        arrived_.wait_for(mutex_, left);
      } else {
        reading_ = true;
        lock.unlock();
        const Arrival arrival = read(left);
        lock.lock();
        reading_ = false;
        arrived_.notify_all();  // for whom it is, and for who reads next
        if (arrival.failure) std::rethrow_exception(arrival.failure);
        if (arrival.frame) sort_in(*arrival.frame);
      }
    }
  }

 private:
  struct Arrival {
    std::optional<Frame> frame;
    std::exception_ptr failure;
  };
  // One frame, or none within `limit`, by this thread.
  Arrival read(Seconds limit) AD_EXCLUDES(mutex_) {
    try {
      return {transport_.receive(limit), nullptr};
    } catch (...) {
      return {std::nullopt, std::current_exception()};
    }
  }

  void sort_in(const Frame& frame) AD_REQUIRES(mutex_) {
    if (frame.header.kind == FrameKind::kAlive) {
      // Of the rank, not of one of its exchanges: news only where nothing else waits.
      for (std::deque<Frame>& inbox : inboxes_) {
        if (inbox.empty()) inbox.push_back(frame);
      }
      return;
    }
    const std::uint16_t channel = frame.header.channel;
    const bool ours = frame.header.kind != FrameKind::kControl && channel < inboxes_.size();
    (ours ? inboxes_[channel] : others_).push_back(frame);
  }

  Transport& transport_;
  SteadyClock clock_;
  Mutex sending_;
  Mutex mutex_;
  ConditionVariable arrived_;
  bool reading_ AD_GUARDED_BY(mutex_) = false;
  std::vector<std::deque<Frame>> inboxes_ AD_GUARDED_BY(mutex_);  // by channel
  std::deque<Frame> others_ AD_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Channel>> channels_;
};

void Channels::Channel::send(RankNumber to, Frame frame) {
  frame.header.channel = number_;
  shared_.send(to, std::move(frame));
}
std::optional<Frame> Channels::Channel::receive_next(Seconds timeout) {
  return shared_.receive(number_, timeout);
}

Channels::Channels(Transport& transport, std::uint16_t count)
    : shared_(std::make_unique<Shared>(transport, count)) {}
Channels::~Channels() = default;

Transport& Channels::at(std::uint16_t channel) { return shared_->channel(channel); }

}  // namespace autodist::comm
