#include "autodist/comm/live_transport.h"

#include <utility>

#include "autodist/base/background.h"

namespace autodist::comm {

LiveTransport::LiveTransport(std::unique_ptr<Transport> transport, Seconds interval,
                             LookAround look_around)
    : transport_(std::move(transport)),
      interval_(interval),
      look_around_(std::move(look_around)),
      sent_(transport_->size(), clock_.now()) {
  const BackgroundThreads from_here;
  heart_ = std::thread([this] { beat(); });
}

LiveTransport::~LiveTransport() { close(Seconds{0}); }

void LiveTransport::send(RankNumber to, Frame frame) {
  const MutexLock lock(sending_);
  transport_->send(to, std::move(frame));
  sent_[to] = clock_.now();
}

void LiveTransport::look_around(const Wait& wait) {
  if (look_around_) look_around_(wait);
}

void LiveTransport::beat() {
  const MutexLock lock(sending_);
  while (!rests_) {
    const Seconds now = clock_.now();
    for (RankNumber rank = 0; rank < size(); ++rank) {
      if (rank == self() || now - sent_[rank] < interval_) continue;
      Frame frame;
      frame.header.kind = FrameKind::kAlive;
      transport_->send(rank, std::move(frame));
      sent_[rank] = now;
    }
    rest_.wait_for(sending_, interval_ * 0.25);
  }
}

void LiveTransport::rest() {
  {
    const MutexLock lock(sending_);
    rests_ = true;
  }
  rest_.notify_all();
  if (heart_.joinable()) heart_.join();
}

void LiveTransport::close(Seconds linger) {
  rest();
  transport_->close(linger);
}

}  // namespace autodist::comm
