#include "autodist/exec/device/host_copies.h"

#include <algorithm>
#include <utility>

#include "autodist/exec/tensor_data.h"

namespace autodist::exec {
namespace {

// Two keep a device's copying engine busy; what has begun can no longer be overtaken.
constexpr std::size_t kUnderWay = 2;

// Between two looks at the oldest copy. To sleep for less takes as much of a core as not to sleep;
// to sleep for more would leave the copying engine idle after its two copies.
constexpr Seconds kShortestPause{20e-6};
constexpr Seconds kLongestPause{1e-3};

// Half of what a copy takes over PCIe 5.0 x16 (measured on an H100, docs/benchmarks/gpu.md): its
// end is seen late by at most that much. Over a slower link the thread looks more often.
Seconds pause_for(Bytes size) {
  constexpr double kBytesPerS = 52.5e9;
  const Seconds half{static_cast<double>(size.value) / kBytesPerS / 2};
  return std::clamp(half, kShortestPause, kLongestPause);
}

Bytes size_to_bring(const torch::Tensor& tensor) {
  return tensor.is_cpu() ? Bytes{} : byte_count(tensor);
}

}  // namespace

HostCopies::HostCopies(torch::Device device, Staging& staging,
                       std::function<void(const std::exception_ptr&)> on_error)
    : device_(device),
      staging_(staging),
      on_error_(std::move(on_error)),
      queue_(Queue::for_copies(device)) {
  if (!device.is_cpu()) thread_ = std::thread([this] { work(); });
}

HostCopies::~HostCopies() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Memory that the device still writes is not to be freed.
  for (const Copy& copy : under_way_) copy.copied.block_host(WaitSite::kBroughtDropped);
}

void HostCopies::bring(Seconds needed, Tensors tensors, Then then) {
  if (device_.is_cpu()) return then(tensors);
  Copy copy{needed, 0, std::move(tensors), std::move(then), Queue::current(device_).record()};
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    copy.call = calls_++;
    handed_in_.push_back(std::move(copy));
  }
  changed_.notify_all();
}

bool HostCopies::has_any(Seconds needed) const {
  const auto is_one = [&](const Copy& copy) { return copy.needed <= needed; };
  return (delivers_ && *delivers_ <= needed) ||
         std::any_of(handed_in_.begin(), handed_in_.end(), is_one) ||
         std::any_of(complete_.begin(), complete_.end(), is_one) ||
         std::any_of(under_way_.begin(), under_way_.end(), is_one);
}

void HostCopies::drain(Seconds needed) {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() AD_REQUIRES(mutex_) { return stopping_ || !has_any(needed); });
}

torch::Tensor HostCopies::copy_of(const torch::Tensor& tensor) const {
  if (tensor.is_cpu()) return tensor;
  if (tensor.is_sparse()) {
    torch::Tensor whole = torch::_sparse_coo_tensor_unsafe(
        copy_of(tensor._indices()), copy_of(tensor._values()), tensor.sizes());
    return whole._coalesced_(tensor.is_coalesced());
  }
  torch::Tensor copy = staging_.take(tensor.sizes(), tensor.scalar_type());
  return copy.copy_(tensor, /*non_blocking=*/true);
}

void HostCopies::begin_copies() {
  const torch::NoGradGuard no_gradients;
  while (!handed_in_.empty() && handed_in_.front().complete.seems_reached()) {
    complete_.insert(std::move(handed_in_.front()));
    handed_in_.pop_front();
  }
  while (under_way_.size() < kUnderWay) {
    Copy next;
    if (!complete_.empty()) {
      next = std::move(complete_.extract(complete_.begin()).value());
    } else if (under_way_.empty() && !handed_in_.empty()) {
      next = std::move(handed_in_.front());
      handed_in_.pop_front();
    } else {
      return;
    }
    const Queue::Scope here(queue_);
    queue_.wait_for(next.complete, WaitSite::kBroughtMade);
    for (const torch::Tensor& tensor : next.tensors) {
      next.bytes += size_to_bring(tensor);
      next.on_host.push_back(copy_of(tensor));
    }
    next.copied = queue_.record();
    under_way_.push_back(std::move(next));
  }
}

void HostCopies::work() {
  try {
    copy_until_stopped();
  } catch (...) {
    on_error_(std::current_exception());  // before anybody learns that nothing more comes
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void HostCopies::copy_until_stopped() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    begin_copies();
    if (under_way_.empty()) {
      changed_.wait(mutex_, [&]() AD_REQUIRES(mutex_) { return stopping_ || !handed_in_.empty(); });
      continue;
    }
    if (!under_way_.front().copied.reached(WaitSite::kBrought)) {
      changed_.wait_for(mutex_, pause_for(under_way_.front().bytes));
      continue;
    }
    Copy copy = std::move(under_way_.front());
    under_way_.pop_front();
    delivers_ = copy.needed;
    lock.unlock();
    copy.tensors.clear();
    copy.then(copy.on_host);
    lock.lock();
    delivers_.reset();
    changed_.notify_all();
  }
}

}  // namespace autodist::exec
