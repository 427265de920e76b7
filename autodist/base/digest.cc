#include "autodist/base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace autodist {

Digest digest_of(const void* data, std::size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

std::string to_string(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

}  // namespace autodist
