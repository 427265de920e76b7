#include "autodist/exec/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>

#include "autodist/exec/kept_pages.h"
#include "autodist/exec/torch_version.h"

namespace autodist::exec {
namespace {

constexpr std::size_t kAlignment = 64;  // libtorch's own

// Lives as long as the last tensor does, which may be a global one.
KeptPages& pages() {
  static auto& pages = *new KeptPages;
  return pages;
}

// In front of a small tensor's memory.
struct HeapBlock {
  std::size_t bytes;  // of the tensor
  std::byte* start;   // what malloc() returned
};

HeapBlock& block_of(void* memory) { return static_cast<HeapBlock*>(memory)[-1]; }

// Of the heap, aligned by hand. glibc's posix_memalign() does not find a gap again that is as large
// as what is asked for, so that a heap of tensors grows to half as much again as they take. Null
// where the system has no more.
void* take_block(std::size_t bytes) {
  static_assert(sizeof(HeapBlock) <= alignof(std::max_align_t),
                "a block is too large for what is in front");
  auto* const start = static_cast<std::byte*>(std::malloc(bytes + kAlignment));
  if (start == nullptr) return nullptr;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(start) % kAlignment;
  std::byte* const memory = start + (kAlignment - misaligned);
  block_of(memory) = {bytes, start};
  return memory;
}

// Whether take_block() has made it. In front of what libtorch took from glibc by itself stands
// glibc's own size of it, which is no address. REQUIRES: take_blocks.
bool is_block(void* memory) {
  std::byte* const start = block_of(memory).start;
  auto* const end = static_cast<std::byte*>(memory);
  return start < end && end <= start + kAlignment;
}

// Not an allocator that was loaded before it, or a sanitizer's.
bool malloc_is_glibcs() {
#ifdef __GLIBC__
  Dl_info glibc{};
  Dl_info malloc{};
  return ::dladdr(reinterpret_cast<void*>(&::gnu_get_libc_version), &glibc) != 0 &&
         ::dladdr(::dlsym(RTLD_DEFAULT, "malloc"), &malloc) != 0 &&
         glibc.dli_fbase == malloc.dli_fbase;
#else
  return false;
#endif
}

// Set once, before the first tensor that it is about.
bool take_blocks = false;

class TensorMemory final : public AnyAllocator {
 public:
  TensorMemory(std::size_t large, c10::Allocator& other) : large_(large), other_(other) {}

  c10::DeleterFnPtr raw_deleter() const override { return &release_any; }

 private:
  c10::DataPtr memory(std::size_t bytes) const override {
    const bool is_large = bytes >= large_;
    void* memory = nullptr;
    if (is_large) {
      memory = pages().take(bytes);
    } else if (take_blocks && bytes > 0) {
      memory = take_block(bytes);
    }
    if (memory == nullptr) return other_.allocate(bytes);  // or throws what libtorch throws
    report(memory, static_cast<std::int64_t>(is_large ? KeptPages::whole_pages(bytes) : bytes));
    // A block is released without a look at the pages, which have a lock.
    return {memory, memory, is_large ? &release_any : &release_block,
            c10::Device(c10::DeviceType::CPU)};
  }

  static void release_block(void* memory) {
    const HeapBlock block = block_of(memory);
    report(memory, -static_cast<std::int64_t>(block.bytes));
    std::free(block.start);
  }
  static void release_any(void* memory) {
    if (memory == nullptr) return;
    if (const std::size_t bytes = pages().give_back(memory); bytes > 0) {
      report(memory, -static_cast<std::int64_t>(bytes));
    } else if (take_blocks && is_block(memory)) {
      release_block(memory);
    } else {
      c10::GetDefaultCPUAllocator()->raw_deallocate(memory);
    }
  }

  // To a profiler, and to a capture that measures what kernels allocate.
  static void report(void* memory, std::int64_t more) {
    static std::atomic<std::int64_t> in_use{0};
    const std::int64_t now = in_use += more;
    if (!c10::memoryProfilingEnabled()) return;
    c10::reportMemoryUsageToProfiler(memory, more, now, 0, c10::Device(c10::DeviceType::CPU));
  }

  std::size_t large_;
  c10::Allocator& other_;
};

void lock_pages() AD_UNCHECKED_THREADS { pages().lock(); }
void unlock_pages() AD_UNCHECKED_THREADS { pages().unlock(); }

}  // namespace

void take_tensor_memory(std::size_t large) {
  static std::once_flag once;
  std::call_once(once, [large] {
    take_blocks = malloc_is_glibcs() && c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator();
    static auto& allocator = *new TensorMemory(large, *c10::GetCPUAllocator());
    c10::SetCPUAllocator(&allocator);
    // A data loader's workers are forked, and take and free tensors of their own.
    ::pthread_atfork(lock_pages, unlock_pages, unlock_pages);
  });
}

void keep_freed_memory() {
  constexpr int kLargestInHeap = 32 << 20;  // glibc's own limit for M_MMAP_THRESHOLD
  constexpr int kGrowBy = 64 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargestInHeap);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, kGrowBy);
  take_tensor_memory(kLargestInHeap);
}

void start_large_tensors_over() { pages().start_over(); }

}  // namespace autodist::exec
