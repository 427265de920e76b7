#include "autodist/comm/zmq/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "autodist/comm/bytes.h"

namespace autodist::comm {
namespace {

constexpr std::size_t kHead = 64;  // before the first block, and before the bytes of each
// Memory files may not shrink under whoever maps them, nor lose that promise.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_SEAL;

// In the head of a block: 1 from put() until the receiver lets go.
std::atomic<std::uint32_t>& mark_of(std::byte* block) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(block);  // NOLINT: what put() placed there
}

std::size_t rounded(std::size_t size) { return (size + kHead - 1) / kHead * kHead; }

std::uint64_t random_token() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

}  // namespace

std::string encode(const SharedReference& reference) {
  ByteWriter out;
  return out.u64(reference.offset).u64(reference.size).take();
}

SharedReference decode_reference(const std::byte* bytes) {
  const std::string copy(reinterpret_cast<const char*>(bytes), kReferenceSize);  // NOLINT
  ByteReader in(copy);
  SharedReference reference;
  reference.offset = in.u64();
  reference.size = in.u64();
  return reference;
}

MappedFile::MappedFile(int descriptor, std::size_t size) : size_(size) {
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  data_ = static_cast<std::byte*>(mapped);
}

MappedFile::~MappedFile() { ::munmap(data_, size_); }

std::unique_ptr<SharedBlocks> SharedBlocks::make(std::size_t capacity) {
  Descriptor made(::memfd_create("autodist", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (made.get() < 0 || ::ftruncate(made.get(), static_cast<off_t>(capacity)) != 0 ||
      ::fcntl(made.get(), F_ADD_SEALS, kSeals) != 0) {
    return nullptr;
  }
  try {
    return std::unique_ptr<SharedBlocks>(new SharedBlocks(std::move(made), capacity));
  } catch (const std::system_error&) {
    return nullptr;
  }
}

SharedBlocks::SharedBlocks(Descriptor descriptor, std::size_t capacity)
    : descriptor_(std::move(descriptor)),
      file_(descriptor_.get(), capacity),
      name_{descriptor_.get(), random_token()},
      untouched_(kHead) {
  std::memcpy(file_.data(), &name_.token, sizeof name_.token);
}

std::optional<SharedReference> SharedBlocks::put(const Payload& payload) {
  const std::optional<Block> block = find(kHead + rounded(payload.size));
  if (!block) return std::nullopt;
  in_use_.push_back(*block);
  std::byte* head = file_.data() + block->offset;
  std::memcpy(head + kHead, payload.data, payload.size);
  auto* mark = new (head) std::atomic<std::uint32_t>;
  mark->store(1, std::memory_order_release);
  return SharedReference{block->offset + kHead, payload.size};
}

// A block that is free, or was meanwhile let go, or is new; of the free ones the smallest.
std::optional<SharedBlocks::Block> SharedBlocks::find(std::size_t size) {
  for (int round = 0; round < 2; ++round) {
    if (const auto found = free_.lower_bound(size); found != free_.end()) {
      const Block block{found->second, found->first};
      free_.erase(found);
      return block;
    }
    if (round == 0) reclaim();
  }
  if (file_.size() - untouched_ < size) return std::nullopt;
  const Block block{untouched_, size};
  untouched_ += size;
  return block;
}

void SharedBlocks::reclaim() {
  std::vector<Block> still;
  for (const Block& block : in_use_) {
    if (mark_of(file_.data() + block.offset).load(std::memory_order_acquire) == 0) {
      free_.emplace(block.size, block.offset);
    } else {
      still.push_back(block);
    }
  }
  in_use_ = std::move(still);
}

std::shared_ptr<SharedReader> SharedReader::open(std::int64_t pid, const SharedMemoryName& name) {
  if (name.descriptor < 0) return nullptr;
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, name.descriptor);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat status {};
  // Only memory files have seals, so nothing else is ever mapped.
  const bool sealed = ::fcntl(file.get(), F_GET_SEALS) == kSeals;
  if (!sealed || ::fstat(file.get(), &status) != 0 || status.st_size <= std::int64_t{kHead}) {
    return nullptr;
  }
  std::shared_ptr<SharedReader> reader;
  try {
    reader.reset(new SharedReader(file.get(), static_cast<std::size_t>(status.st_size)));
  } catch (const std::system_error&) {
    return nullptr;
  }
  std::uint64_t token = 0;
  std::memcpy(&token, reader->file_.data(), sizeof token);
  return token == name.token ? reader : nullptr;
}

std::optional<Payload> SharedReader::at(const std::shared_ptr<SharedReader>& self,
                                        const SharedReference& reference) {
  const std::size_t size = self->file_.size();
  if (reference.offset % kHead != 0 || reference.offset < 2 * kHead || reference.offset > size ||
      reference.size > size - reference.offset) {
    return std::nullopt;
  }
  std::byte* bytes = self->file_.data() + reference.offset;
  const std::shared_ptr<const void> keep(bytes, [self](const void* data) {
    auto* head = const_cast<std::byte*>(static_cast<const std::byte*>(data)) - kHead;  // NOLINT
    mark_of(head).store(0, std::memory_order_release);
  });
  return Payload{bytes, static_cast<std::size_t>(reference.size), keep};
}

}  // namespace autodist::comm
