#include "autodist/exec/large_tensors.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <pthread.h>

#include <limits>
#include <mutex>

#include "autodist/exec/kept_pages.h"
#include "autodist/exec/torch_version.h"

namespace autodist::exec {
namespace {

// Lives as long as the last tensor does, which may be a global one.
KeptPages& pages() {
  static auto& pages = *new KeptPages;
  return pages;
}

class LargeTensors final : public AnyAllocator {
 public:
  LargeTensors(std::size_t large, c10::Allocator& small) : large_(large), small_(small) {}

  c10::DeleterFnPtr raw_deleter() const override { return &release_any; }

 private:
  c10::DataPtr memory(std::size_t bytes) const override {
    void* const memory = bytes < large_ ? nullptr : pages().take(bytes);
    if (memory == nullptr) return small_.allocate(bytes);  // or throws what libtorch throws
    return {memory, memory, &release_pages, c10::Device(c10::DeviceType::CPU)};
  }

  static void release_pages(void* memory) { pages().give_back(memory); }
  static void release_any(void* memory) {
    if (!pages().give_back(memory)) c10::GetDefaultCPUAllocator()->raw_deallocate(memory);
  }

  std::size_t large_;
  c10::Allocator& small_;
};

void lock_pages() AD_UNCHECKED_THREADS { pages().lock(); }
void unlock_pages() AD_UNCHECKED_THREADS { pages().unlock(); }

}  // namespace

void keep_large_tensors(std::size_t bytes) {
  static std::once_flag once;
  std::call_once(once, [bytes] {
    static auto& allocator = *new LargeTensors(bytes, *c10::GetCPUAllocator());
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
  keep_large_tensors(kLargestInHeap);
}

void start_large_tensors_over() { pages().start_over(); }

}  // namespace autodist::exec
