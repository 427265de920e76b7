#include "tests/device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>

namespace autodist::test_device {
namespace {

constexpr std::size_t kSpace = std::size_t{1} << 34;  // of addresses; pages come when touched
constexpr std::size_t kPage = 4096;

std::byte* map(int file, int protection) {
  void* memory = mmap(nullptr, kSpace, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error(std::string("test device: mmap: ") + std::strerror(errno));
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

Memory::Memory(bool open) : open_(open) {
  const int file = memfd_create("test_device", 0);
  if (file < 0 || ftruncate(file, kSpace) != 0) {
    throw std::runtime_error(std::string("test device: memfd: ") + std::strerror(errno));
  }
  tensors_ = map(file, open ? PROT_READ | PROT_WRITE : PROT_NONE);
  kernels_ = map(file, PROT_READ | PROT_WRITE);
  close(file);
}

void* Memory::allocate(std::size_t bytes, int queue) {
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  in_use_ += static_cast<std::int64_t>(size);
  std::vector<std::size_t>& idle = idle_[{queue, size}];
  if (!idle.empty()) {
    const std::size_t offset = idle.back();
    idle.pop_back();
    if (open_) blocks_[offset].accesses = {};  // the host has seen that they are over
    return tensors_ + offset;
  }
  if (end_ + size > kSpace) throw std::bad_alloc();
  const std::size_t offset = end_;
  end_ += size;
  blocks_[offset] = Block{size, queue};
  std::memset(kernels_ + offset, 0xFF, size);
  return tensors_ + offset;
}

void Memory::free(void* block) {
  const std::size_t offset = static_cast<std::byte*>(block) - tensors_;
  const Block& freed = blocks_.at(offset);
  in_use_ -= static_cast<std::int64_t>(freed.bytes);
  idle_[{freed.queue, freed.bytes}].push_back(offset);
  if (open_) protect(block, PROT_READ | PROT_WRITE);
}

bool Memory::holds(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  return tensors_ <= byte && byte < tensors_ + kSpace;
}

Block& Memory::block_of(const void* address) {
  const std::size_t offset = static_cast<const std::byte*>(address) - tensors_;
  return std::prev(blocks_.upper_bound(offset))->second;
}

std::byte* Memory::for_kernels(const void* address) const {
  return kernels_ + (static_cast<const std::byte*>(address) - tensors_);
}

void Memory::protect(const void* address, int protection) {
  const std::size_t offset = static_cast<const std::byte*>(address) - tensors_;
  const auto block = std::prev(blocks_.upper_bound(offset));
  if (mprotect(tensors_ + block->first, block->second.bytes, protection) != 0) {
    throw std::runtime_error(std::string("test device: mprotect: ") + std::strerror(errno));
  }
}

}  // namespace autodist::test_device
