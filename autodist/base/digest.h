// A 128-bit digest (XXH3) of bytes: tells two programs, tensors or checkpoints apart. Not
// cryptographic: it detects differences, it does not authenticate (that is CURVE's part).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace autodist {

struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Digest& a, const Digest& b) {
    return a.high == b.high && a.low == b.low;
  }
  friend bool operator!=(const Digest& a, const Digest& b) { return !(a == b); }
};

Digest digest_of(const void* data, std::size_t size);
inline Digest digest_of(std::string_view text) { return digest_of(text.data(), text.size()); }

// 32 lower-case hexadecimal digits.
std::string to_string(const Digest& digest);

}  // namespace autodist
