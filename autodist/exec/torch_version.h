// Where the two generations of libtorch that we build against (1.13 and 2.x) differ.
//
// Private to exec.

#pragma once

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
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

// Where host memory comes from that a device copies from and to by itself. Throws c10::Error where
// libtorch has none for this kind of device.
inline c10::Allocator* pinned_allocator(c10::DeviceType kind) {
#if TORCH_VERSION_MAJOR < 2
  TORCH_CHECK(kind == c10::kCUDA, "libtorch 1.13 pins memory for CUDA alone");
  return at::detail::getCUDAHooks().getPinnedMemoryAllocator();
#else
  return at::globalContext().getPinnedMemoryAllocator(kind);
#endif
}

}  // namespace autodist::exec
