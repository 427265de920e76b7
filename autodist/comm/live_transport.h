// A transport whose rank shows that it is alive: whatever its program does (captures, plans, reads
// data, sleeps), a thread of its own sends every peer a heartbeat where nothing else was sent for a
// while. So the others can tell a rank that is busy from one that is lost.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/mutex.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

class LiveTransport final : public Transport {
 public:
  using LookAround = std::function<void(const Wait&)>;

  // A peer hears something at least every `interval`, until close(). `look_around` is
  // Transport::look_around(); it may be empty.
  LiveTransport(std::unique_ptr<Transport> transport, Seconds interval,
                LookAround look_around = {});
  ~LiveTransport() override;  // close(Seconds{0})

  [[nodiscard]] RankNumber self() const override { return transport_->self(); }
  [[nodiscard]] RankNumber size() const override { return transport_->size(); }
  [[nodiscard]] std::string describe(RankNumber rank) const override {
    return transport_->describe(rank);
  }
  void send(RankNumber to, Frame frame) override;
  std::optional<RankNumber> gone() override { return transport_->gone(); }
  void look_around(const Wait& wait) override;
  // No more signs of life: nobody waits for this rank any more. Idempotent.
  void rest();
  void close(Seconds linger) override;

 protected:
  std::optional<Frame> receive_next(Seconds timeout) override {
    return transport_->receive(timeout);
  }

 private:
  void beat();

  std::unique_ptr<Transport> transport_;
  Seconds interval_;
  LookAround look_around_;
  SteadyClock clock_;
  Mutex sending_;
  std::vector<Seconds> sent_ AD_GUARDED_BY(sending_);  // by peer: when it was sent something
  bool rests_ AD_GUARDED_BY(sending_) = false;
  ConditionVariable rest_;
  std::thread heart_;
};

}  // namespace autodist::comm
