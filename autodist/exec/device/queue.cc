#include "autodist/exec/device/queue.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace autodist::exec {
namespace {

constexpr int kNone = -1;
std::atomic<int> left_out{kNone};
std::array<std::atomic<bool>, kWaitSites> reached_sites{};

bool waits_at(WaitSite site) {
  std::atomic<bool>& reached = reached_sites[static_cast<std::size_t>(site)];
  // Not written again by every poll: threads share the cache line.
  if (!reached.load(std::memory_order_relaxed)) reached = true;
  return left_out.load(std::memory_order_relaxed) != static_cast<int>(site);
}

}  // namespace

void leave_out(std::optional<WaitSite> site) { left_out = site ? static_cast<int>(*site) : kNone; }

bool was_reached(WaitSite site) { return reached_sites[static_cast<std::size_t>(site)]; }

bool Mark::reached(WaitSite site) const {
  return event_ == nullptr || !waits_at(site) || event_->query();
}

bool Mark::seems_reached() const { return event_ == nullptr || event_->query(); }

void Mark::block_host(WaitSite site, const std::function<void()>& look) const {
  constexpr std::chrono::microseconds kPause{20};
  while (!reached(site)) {
    if (look) look();
    std::this_thread::sleep_for(kPause);
  }
}

Queue Queue::current(torch::Device device) {
  if (device.is_cpu()) return Queue(std::nullopt);
  return Queue(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

Queue Queue::for_copies(torch::Device device) {
  if (device.is_cpu()) return Queue(std::nullopt);
  const c10::impl::VirtualGuardImpl device_kind(device.type());
  return Queue(device_kind.getStreamFromGlobalPool(device, /*isHighPriority=*/true));
}

Mark Queue::record() const {
  Mark mark;
  if (!stream_) return mark;
  const auto event = std::make_shared<c10::Event>(stream_->device_type());
  event->record(*stream_);
  mark.event_ = event;
  return mark;
}

void Queue::wait_for(const Mark& mark, WaitSite site) const {
  if (!stream_ || mark.event_ == nullptr || !waits_at(site)) return;
  mark.event_->block(*stream_);
}

}  // namespace autodist::exec
