// Whatever a graph file holds: it is refused by an Error, or read, verified and written again.
//
// Mutations happen to the packed contents: behind a checksum they would never reach the reader.

#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "autodist/base/error.h"
#include "autodist/ir/graph_file.h"

namespace {

constexpr std::size_t kHeader = 9;  // the magic word with its zero, and the format
constexpr std::size_t kLargest = 8 << 20;

std::string unpack(const std::uint8_t* data, std::size_t size) {
  std::string bytes(kLargest, '\0');
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), data, size);
  bytes.resize(ZSTD_isError(got) != 0U ? 0 : got);
  return bytes;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned int seed) {
  std::string contents;
  if (seed % 8 != 0 && size > kHeader) contents = unpack(data + kHeader, size - kHeader);
  if (contents.empty()) return LLVMFuzzerMutate(data, size, most);
  if (seed % 8 == 1) {  // a few bytes over and over, which pack to next to nothing
    const std::string part = contents.substr(seed / 8 % contents.size(), 2 + seed / 64 % 6);
    while (contents.size() + part.size() < kLargest / 2) contents += part;
  }
  const std::size_t length = contents.size();
  contents.resize(std::min(2 * length + 64, kLargest));
  contents.resize(
      LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(contents.data()), length, contents.size()));
  std::string packed(ZSTD_compressBound(contents.size()), '\0');
  const std::size_t got =
      ZSTD_compress(packed.data(), packed.size(), contents.data(), contents.size(), 1);
  if (ZSTD_isError(got) != 0U || kHeader + got > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data + kHeader, packed.data(), got);
  return kHeader + got;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace autodist;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::optional<ir::Graph> graph;
  try {
    graph = ir::deserialize(bytes, "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (!(ir::deserialize(ir::serialize(*graph), "again") == *graph)) std::abort();
  return 0;
}
