#include "autodist/exec/device/staging.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <utility>

#include "autodist/base/mutex.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/torch_version.h"

namespace autodist::exec {
namespace {

std::map<torch::DeviceType, c10::Allocator*>& given_allocators() {
  static std::map<torch::DeviceType, c10::Allocator*> given;
  return given;
}

// Powers of two, which libtorch 2.x pins for CUDA in any case: memory for tensors whose sizes vary
// from step to step is found again, and what is counted is what is pinned.
std::size_t rounded_up(std::size_t bytes) {
  std::size_t size = 512;
  while (size < bytes) size *= 2;
  return size;
}

c10::Allocator* allocator_of(torch::DeviceType kind) {
  if (kind == torch::kCPU) return nullptr;
  const auto given = given_allocators().find(kind);
  const bool is_given = given != given_allocators().end() && given->second != nullptr;
  return is_given ? given->second : pinned_allocator(kind);
}

}  // namespace

void set_pinned_allocator(torch::DeviceType kind, c10::Allocator* allocator) {
  given_allocators()[kind] = allocator;
}

class Staging::Pool {
 public:
  Pool(c10::Allocator* allocator, std::size_t limit) : allocator_(allocator), limit_(limit) {}

  // Null beyond the limit.
  c10::DataPtr take(std::size_t bytes) {
    const MutexLock lock(mutex_);
    const auto newest = std::find_if(idle_.rbegin(), idle_.rend(),
                                     [&](const Idle& each) { return each.bytes == bytes; });
    if (newest != idle_.rend()) {
      c10::DataPtr memory = std::move(newest->memory);
      idle_.erase(std::next(newest).base());
      idle_bytes_ -= bytes;
      return memory;
    }
    if (allocator_ == nullptr || pinned_ - idle_bytes_ + bytes > limit_) return {};
    // What nobody asked for lately makes room.
    while (pinned_ + bytes > limit_) {
      pinned_ -= idle_.front().bytes;
      idle_bytes_ -= idle_.front().bytes;
      idle_.pop_front();
    }
    pinned_ += bytes;
    return allocator_->allocate(bytes);
  }

  void give_back(std::size_t bytes, c10::DataPtr memory) {
    const MutexLock lock(mutex_);
    idle_.push_back({bytes, std::move(memory)});
    idle_bytes_ += bytes;
  }

  [[nodiscard]] std::size_t pinned() const {
    const MutexLock lock(mutex_);
    return pinned_;
  }

 private:
  struct Idle {
    std::size_t bytes;
    c10::DataPtr memory;
  };

  c10::Allocator* const allocator_;
  const std::size_t limit_;
  mutable Mutex mutex_;
  std::deque<Idle> idle_ AD_GUARDED_BY(mutex_);  // in the order in which they came back
  std::size_t idle_bytes_ AD_GUARDED_BY(mutex_) = 0;
  std::size_t pinned_ AD_GUARDED_BY(mutex_) = 0;
};

Staging::Staging(torch::Device device, Bytes limit)
    : device_(device),
      pool_(std::make_shared<Pool>(allocator_of(device.type()),
                                   static_cast<std::size_t>(limit.value))) {}

torch::Tensor Staging::take(torch::IntArrayRef sizes, torch::ScalarType type) {
  const auto options = torch::TensorOptions(type);
  const auto asked =
      static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  const std::size_t bytes = rounded_up(asked);
  c10::DataPtr memory = asked == 0 ? c10::DataPtr() : pool_->take(bytes);
  if (memory.get() == nullptr) return torch::empty(sizes, options);
  void* const data = memory.get();
  const auto held = std::make_shared<c10::DataPtr>(std::move(memory));
  return torch::from_blob(
      data, sizes, [pool = pool_, bytes, held](void*) { pool->give_back(bytes, std::move(*held)); },
      options);
}

torch::Tensor on_host(const torch::Tensor& tensor, Staging& staging,
                      const std::function<void()>& look) {
  if (tensor.is_cpu()) return tensor;
  torch::Tensor copy = staging.take(tensor.sizes(), tensor.scalar_type());
  copy.copy_(tensor, /*non_blocking=*/true);
  Queue::current(tensor.device()).record().block_host(WaitSite::kHostRead, look);
  return copy;
}

Bytes Staging::pinned() const { return Bytes(static_cast<std::int64_t>(pool_->pinned())); }

}  // namespace autodist::exec
