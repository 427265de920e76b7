#include "autodist/exec/kept_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace autodist::exec {
namespace {

std::byte* map_pages(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

KeptPages::~KeptPages() {
  for (const Range& each : kept_) ::munmap(each.begin, each.bytes);
}

std::size_t KeptPages::whole_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void* KeptPages::take(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
  const std::size_t size = whole_pages(bytes);
  const MutexLock lock(mutex_);
  std::byte* memory = cut_kept(size);
  if (memory == nullptr) memory = grow_kept(size);
  if (memory == nullptr) memory = map_pages(size);
  if (memory == nullptr) return nullptr;
  in_use_[memory] = size;
  use_.in_use += size;
  use_.most_in_use = std::max(use_.most_in_use, use_.in_use);
  const std::size_t together = use_.in_use + use_.kept;
  if (together > use_.most_in_use) forget(together - use_.most_in_use);
  return memory;
}

std::size_t KeptPages::give_back(void* memory) {
  const MutexLock lock(mutex_);
  const auto found = in_use_.find(memory);
  if (found == in_use_.end()) return 0;
  const Range range{static_cast<std::byte*>(memory), found->second};
  in_use_.erase(found);
  use_.in_use -= range.bytes;
  use_.kept += range.bytes;
  kept_.push_back(range);
  return range.bytes;
}

void KeptPages::start_over() {
  const MutexLock lock(mutex_);
  forget(use_.kept);
  use_.most_in_use = use_.in_use;
}

KeptPages::Use KeptPages::use() const {
  const MutexLock lock(mutex_);
  return use_;
}

// The front of the smallest kept range that suffices, of equal ones the one that came back last;
// its end stays kept. Null where none does.
std::byte* KeptPages::cut_kept(std::size_t bytes) {
  auto best = kept_.end();
  for (auto each = kept_.begin(); each != kept_.end(); ++each) {
    if (each->bytes >= bytes && (best == kept_.end() || each->bytes <= best->bytes)) best = each;
  }
  if (best == kept_.end()) return nullptr;
  std::byte* const memory = best->begin;
  use_.kept -= bytes;
  best->begin += bytes;
  best->bytes -= bytes;
  if (best->bytes == 0) kept_.erase(best);
  return memory;
}

// The largest kept range with new pages behind it. Null where nothing is kept or there is no room.
std::byte* KeptPages::grow_kept(std::size_t bytes) {
  const auto largest = std::max_element(
      kept_.begin(), kept_.end(), [](const Range& a, const Range& b) { return a.bytes < b.bytes; });
  if (largest == kept_.end()) return nullptr;
  void* const memory = ::mremap(largest->begin, largest->bytes, bytes, MREMAP_MAYMOVE);
  if (memory == MAP_FAILED) return nullptr;
  use_.kept -= largest->bytes;
  kept_.erase(largest);
  return static_cast<std::byte*>(memory);
}

// Unmaps kept pages, those that came back first, from the ends of their ranges. REQUIRES: at least
// so much is kept.
void KeptPages::forget(std::size_t bytes) {
  use_.kept -= bytes;
  while (bytes > 0) {
    Range& oldest = kept_.front();
    const std::size_t part = std::min(oldest.bytes, bytes);
    oldest.bytes -= part;
    bytes -= part;
    ::munmap(oldest.begin + oldest.bytes, part);
    if (oldest.bytes == 0) kept_.erase(kept_.begin());
  }
}

}  // namespace autodist::exec
