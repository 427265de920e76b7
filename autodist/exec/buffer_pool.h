// Buffers of one size that are lent out and come back by themselves: a slice's bytes are written
// once a step and may still be on their way when the next step writes again.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace autodist::exec {

// Used by one thread; the buffers that it lends may be dropped by any.
class BufferPool {
 public:
  using Buffer = std::shared_ptr<std::byte>;

  explicit BufferPool(std::size_t bytes) : bytes_(bytes) {}

  // A buffer that nobody else holds; its contents are whatever was there.
  Buffer take() {
    for (const Buffer& buffer : buffers_) {
      if (has_holders(buffer, 1)) return buffer;
    }
    buffers_.push_back(allocate(bytes_));
    return buffers_.back();
  }

  // Whether `buffer`, taken from a pool, is held by the caller's one reference and nobody else.
  static bool held_by_asker_alone(const Buffer& buffer) { return has_holders(buffer, 2); }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t allocated() const { return buffers_.size(); }

 private:
  static constexpr std::align_val_t kAlignment{64};  // a cache line; more than any element needs

  static Buffer allocate(std::size_t bytes) {
    auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    return {memory, [](std::byte* pointer) { ::operator delete(pointer, kAlignment); }};
  }

  // Who dropped the reference before had finished reading.
  static bool has_holders(const Buffer& buffer, long count) {
    if (buffer.use_count() != count) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }

  std::size_t bytes_;
  std::vector<Buffer> buffers_;
};

}  // namespace autodist::exec
