// Memory that is mapped twice: at the address that tensors have, which is closed to the host or
// opened and closed page by page, and at another one that kernels use.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/device/clocks.h"

namespace autodist::test_device {

struct Block {
  std::size_t bytes = 0;  // in whole pages
  int queue = 0;          // on which it was allocated
  Accesses accesses{};
};

// Not by several threads at once.
class Memory {
 public:
  // `open`: the host may touch it until protect() says otherwise.
  explicit Memory(bool open);

  // A block that belongs to a queue, whose freed blocks are taken again.
  void* allocate(std::size_t bytes, int queue);
  void free(void* block);

  [[nodiscard]] bool holds(const void* address) const;
  // The block that an address lies in. REQUIRES: holds().
  [[nodiscard]] Block& block_of(const void* address);
  // Where kernels find what tensors have at `address`.
  [[nodiscard]] std::byte* for_kernels(const void* address) const;
  // What the host may do with the block: PROT_NONE, PROT_READ, …
  void protect(const void* address, int protection);

  [[nodiscard]] std::int64_t in_use() const { return in_use_; }

 private:
  std::byte* tensors_;  // what tensors see
  std::byte* kernels_;
  const bool open_;
  std::size_t end_ = 0;
  std::map<std::size_t, Block> blocks_;                                   // by offset; for good
  std::map<std::pair<int, std::size_t>, std::vector<std::size_t>> idle_;  // by queue and bytes
  std::int64_t in_use_ = 0;
};

}  // namespace autodist::test_device
