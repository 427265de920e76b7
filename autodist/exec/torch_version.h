// Where the two generations of libtorch that we build against (1.13 and 2.x) differ.
//
// Private to exec.

#pragma once

#include <c10/core/Allocator.h>
#include <torch/version.h>

#include <cstddef>

namespace autodist::exec {

// An allocator that says where memory comes from, and nothing else.
class AnyAllocator : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR < 2
  c10::DataPtr allocate(std::size_t bytes) const final { return memory(bytes); }
#else
  c10::DataPtr allocate(std::size_t bytes) final { return memory(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const final {
    default_copy_data(to, from, bytes);
  }
#endif

 protected:
  [[nodiscard]] virtual c10::DataPtr memory(std::size_t bytes) const = 0;
};

}  // namespace autodist::exec
