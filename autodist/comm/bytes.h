// Small messages as bytes: little-endian integers and strings behind their length.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace autodist::comm {

inline constexpr std::size_t kLongestString = 4096;  // that a reader believes

class ByteWriter {
 public:
  ByteWriter& u16(std::uint16_t value) { return integer(value, 2); }
  ByteWriter& u32(std::uint32_t value) { return integer(value, 4); }
  ByteWriter& u64(std::uint64_t value) { return integer(value, 8); }
  ByteWriter& raw(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  ByteWriter& string(std::string_view text) {
    return u32(static_cast<std::uint32_t>(text.size())).raw(text);
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  ByteWriter& integer(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

// Gives zeros and empty strings once the bytes ran out or a string was too long; good() tells.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  std::uint16_t u16() { return static_cast<std::uint16_t>(integer(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  std::uint64_t u64() { return integer(8); }
  std::string raw(std::size_t size) {
    good_ = good_ && size <= left_.size();
    if (!good_) return "";
    const std::string bytes(left_.substr(0, size));
    left_.remove_prefix(size);
    return bytes;
  }
  std::string string() {
    const std::size_t size = u32();
    good_ = good_ && size <= kLongestString;
    return raw(size);
  }
  [[nodiscard]] std::size_t left() const { return left_.size(); }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return good_ && left_.empty(); }

 private:
  std::uint64_t integer(std::size_t size) {
    const std::string bytes = raw(size);
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i > 0; --i) {
      value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
    }
    return value;
  }

  std::string_view left_;
  bool good_ = true;
};

}  // namespace autodist::comm
