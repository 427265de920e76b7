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
      if (is_free(buffer)) return buffer;
    }
    buffers_.push_back(allocate(bytes_));
    return buffers_.back();
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t allocated() const { return buffers_.size(); }

 private:
  static constexpr std::align_val_t kAlignment{64};  // a cache line; more than any element needs

  static Buffer allocate(std::size_t bytes) {
    auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    return {memory, [](std::byte* pointer) { ::operator delete(pointer, kAlignment); }};
  }

  // The pool holds one reference. Who dropped the last other one had finished reading before.
  static bool is_free(const Buffer& buffer) {
    if (buffer.use_count() != 1) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }

  std::size_t bytes_;
  std::vector<Buffer> buffers_;
};

}  // namespace autodist::exec
