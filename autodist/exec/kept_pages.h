// Memory for tensors so large that glibc takes them from the kernel one by one, kept from step to
// step. A step allocates and frees the same sizes again and again, and every page that went back
// to the kernel in between is cleared when it comes again.
//
// What is kept never adds to the peak: in use and kept together are at most what was in use at
// once since start_over(). Pages carry no size: a kept range is cut where less is asked for, and
// grown (mremap, which moves pages without copying them) where more is.

#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "autodist/base/mutex.h"

namespace autodist::exec {

// By any number of threads.
class KeptPages {
 public:
  // Bytes, in whole pages.
  struct Use {
    std::size_t in_use = 0;
    std::size_t kept = 0;
    std::size_t most_in_use = 0;
  };

  KeptPages() = default;
  // Gives back what is kept. What is in use stays with its holders.
  ~KeptPages();
  KeptPages(const KeptPages&) = delete;
  KeptPages& operator=(const KeptPages&) = delete;

  // What `bytes` take.
  static std::size_t whole_pages(std::size_t bytes);

  // At least `bytes`, on a page's boundary; what is in them is arbitrary. Null where the system
  // has no more. REQUIRES: bytes > 0.
  void* take(std::size_t bytes);

  // The bytes that are no longer in use, in whole pages; 0, and nothing else, where `memory` is
  // not.
  std::size_t give_back(void* memory);

  // Gives back what is kept, and the peak begins anew: what comes next needs other sizes.
  void start_over();

  [[nodiscard]] Use use() const;

  // Around a fork(): no other thread may be inside when the process is copied.
  void lock() AD_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() AD_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  struct Range {  // within one mapping
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
  };

  std::byte* cut_kept(std::size_t bytes) AD_REQUIRES(mutex_);
  std::byte* grow_kept(std::size_t bytes) AD_REQUIRES(mutex_);
  void forget(std::size_t bytes) AD_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<const void*, std::size_t> in_use_ AD_GUARDED_BY(mutex_);
  std::vector<Range> kept_ AD_GUARDED_BY(mutex_);  // what came back first is first
  Use use_ AD_GUARDED_BY(mutex_);
};

}  // namespace autodist::exec
