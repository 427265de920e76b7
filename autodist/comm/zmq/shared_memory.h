// Payloads between ranks of one machine, through memory that both map, in the place of its loopback
// device: one copy and no bytes through the kernel.
//
// A sender copies a payload into a block of a memory file of its own and sends where it lies; the
// receiver reads it there and marks the block as free when it is done. The file has no name: the
// kernel takes it back with the last process that maps it, however these end.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/file.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// How other processes of the machine find a memory file. No descriptor: there is none.
struct SharedMemoryName {
  std::int32_t descriptor = -1;  // in the process that made it
  std::uint64_t token = 0;  // stands at its head: a process id may mean another process elsewhere

  friend bool operator==(const SharedMemoryName&, const SharedMemoryName&) = default;
};

// Where a payload lies in its sender's memory; 16 bytes on the wire.
struct SharedReference {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
inline constexpr std::size_t kReferenceSize = 16;
std::string encode(const SharedReference& reference);
SharedReference decode_reference(const std::byte* bytes);  // REQUIRES: kReferenceSize of them

// Memory that some process made, mapped into this one.
class MappedFile {
 public:
  MappedFile(int descriptor, std::size_t size);  // throws std::system_error
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The sender's side. One thread at a time.
class SharedBlocks {
 public:
  // Room for `capacity` bytes, which are taken from the machine as they are used. Nothing where the
  // system has no memory files.
  static std::unique_ptr<SharedBlocks> make(std::size_t capacity);

  [[nodiscard]] SharedMemoryName name() const { return name_; }

  // A copy of the payload; nothing where no block is free that is large enough.
  std::optional<SharedReference> put(const Payload& payload);

 private:
  struct Block {
    std::size_t offset = 0;
    std::size_t size = 0;  // with its head
  };

  SharedBlocks(Descriptor descriptor, std::size_t capacity);
  std::optional<Block> find(std::size_t size);
  void reclaim();

  Descriptor descriptor_;
  MappedFile file_;
  SharedMemoryName name_;
  std::size_t untouched_;  // where the part begins that was never in a block
  std::vector<Block> in_use_;
  std::multimap<std::size_t, std::size_t> free_;  // size, offset
};

// The receiver's side: what another process of this machine put there.
class SharedReader {
 public:
  // Nothing where the process cannot be seen from here, or its descriptor is something else.
  static std::shared_ptr<SharedReader> open(std::int64_t pid, const SharedMemoryName& name);

  // The payload at a reference; its block is free again once nobody keeps it. Nothing for a
  // reference that does not lie in the memory. `self` is what open() returned.
  static std::optional<Payload> at(const std::shared_ptr<SharedReader>& self,
                                   const SharedReference& reference);

 private:
  SharedReader(int descriptor, std::size_t size) : file_(descriptor, size) {}
  MappedFile file_;
};

}  // namespace autodist::comm
