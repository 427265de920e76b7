// Buffers of one size that are lent out and come back by themselves: a slice's bytes are written
// once a step and may still be on their way when the next step writes again.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "autodist/comm/transport.h"

namespace autodist::exec {

// Memory on a cache line's boundary, which suits elements of every type.
inline std::shared_ptr<std::byte> allocate_aligned(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
  return {memory, [](std::byte* pointer) { ::operator delete(pointer, kAlignment); }};
}

inline std::shared_ptr<std::byte> allocate_zeros(std::size_t bytes) {
  std::shared_ptr<std::byte> memory = allocate_aligned(bytes);
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// As a payload with memory of its own.
inline comm::Payload aligned_copy(const void* data, std::size_t bytes) {
  std::shared_ptr<std::byte> memory = allocate_aligned(bytes);
  if (bytes != 0) std::memcpy(memory.get(), data, bytes);
  return {memory.get(), bytes, memory};
}

// Has one writer, and readers on other threads as long as they hold what lend() gave them.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : memory_(allocate_aligned(bytes)) {}

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

  // Keeps `buffer` alive and counts as a reader until the last copy is gone.
  static std::shared_ptr<const void> lend(const std::shared_ptr<Buffer>& buffer) {
    buffer->readers_.fetch_add(1, std::memory_order_relaxed);
    return {buffer.get(),
            [buffer](const void*) { buffer->readers_.fetch_sub(1, std::memory_order_release); }};
  }

  // False: all readers have finished, and what they read may be overwritten.
  [[nodiscard]] bool is_lent() const { return readers_.load(std::memory_order_acquire) != 0; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::atomic<int> readers_{0};
};

// By one thread.
class BufferPool {
 public:
  explicit BufferPool(std::size_t bytes) : bytes_(bytes) {}

  // A buffer that nobody else uses; its contents are whatever was there. The one that came back
  // last, whose lines a cache may still hold.
  std::shared_ptr<Buffer> take() {
    for (auto each = idle_.rbegin(); each != idle_.rend(); ++each) {
      if ((*each)->is_lent()) continue;
      std::shared_ptr<Buffer> buffer = std::move(*each);
      idle_.erase(std::next(each).base());
      return buffer;
    }
    return std::make_shared<Buffer>(bytes_);
  }

  // The writer is done with it; readers may not be.
  void give_back(std::shared_ptr<Buffer> buffer) { idle_.push_back(std::move(buffer)); }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<std::shared_ptr<Buffer>> idle_;
};

}  // namespace autodist::exec
