// No thread of its own: whoever waits for a frame while nobody else does reads the transport, and
// hands what is not its own to those it belongs to.

#include "autodist/comm/channels.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"

namespace autodist::comm {

class Channels::Channel final : public Transport {
 public:
  Channel(Shared& shared, std::uint16_t number) : shared_(shared), number_(number) {}

  [[nodiscard]] RankNumber self() const override;
  [[nodiscard]] RankNumber size() const override;
  [[nodiscard]] std::string describe(RankNumber rank) const override;
  void send(RankNumber to, Frame frame) override;
  void close(Seconds) override {}

 protected:
  std::optional<Frame> receive_next(Seconds timeout) override;

 private:
  Shared& shared_;
  std::uint16_t number_;
};

class Channels::Shared {
 public:
  Shared(Transport& transport, std::uint16_t count) : transport_(transport), inboxes_(count) {
    for (std::uint16_t i = 0; i < count; ++i) {
      channels_.push_back(std::make_unique<Channel>(*this, i));
    }
  }
  ~Shared() {
    for (auto frame = others_.rbegin(); frame != others_.rend(); ++frame) {
      transport_.give_back(std::move(*frame));
    }
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  [[nodiscard]] const Transport& transport() const { return transport_; }
  Channel& channel(std::uint16_t number) {
    AD_CHECK(number < channels_.size()) << "channel " << number;
    return *channels_[number];
  }

  void send(RankNumber to, Frame frame) {
    const std::lock_guard<std::mutex> one_at_a_time(sending_);
    transport_.send(to, std::move(frame));
  }

  std::optional<Frame> receive(std::uint16_t channel, Seconds timeout) {
    const Seconds end = clock_.now() + timeout;
    std::deque<Frame>& inbox = inboxes_[channel];
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (!inbox.empty()) {
        Frame frame = std::move(inbox.front());
        inbox.pop_front();
        return frame;
      }
      const Seconds left = end - clock_.now();
      if (left < Seconds{0}) return std::nullopt;
      if (reading_) {
        arrived_.wait_for(lock, std::chrono::duration<double>(left.value));
      } else {
        read(lock, left);
      }
    }
  }

 private:
  // One frame, or none within `limit`, by this thread.
  void read(std::unique_lock<std::mutex>& lock, Seconds limit) {
    reading_ = true;
    lock.unlock();
    std::optional<Frame> frame;
    try {
      frame = transport_.receive(limit);
    } catch (...) {
      lock.lock();
      reading_ = false;
      arrived_.notify_all();
      throw;
    }
    lock.lock();
    reading_ = false;
    if (frame && frame->header.kind == FrameKind::kAlive) {
      // Of the rank, not of one of its exchanges: news only where nothing else waits.
      for (std::deque<Frame>& inbox : inboxes_) {
        if (inbox.empty()) inbox.push_back(*frame);
      }
    } else if (frame) {
      const std::uint16_t channel = frame->header.channel;
      const bool ours = frame->header.kind != FrameKind::kControl && channel < inboxes_.size();
      (ours ? inboxes_[channel] : others_).push_back(std::move(*frame));
    }
    arrived_.notify_all();  // for whom it is, and for who reads next
  }

  Transport& transport_;
  SteadyClock clock_;
  std::mutex sending_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  bool reading_ = false;
  std::vector<std::deque<Frame>> inboxes_;  // by channel
  std::deque<Frame> others_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

RankNumber Channels::Channel::self() const { return shared_.transport().self(); }
RankNumber Channels::Channel::size() const { return shared_.transport().size(); }
std::string Channels::Channel::describe(RankNumber rank) const {
  return shared_.transport().describe(rank);
}
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
