// A canonical encoding of plain data, for digests: every field in order, fixed widths, lengths
// before contents, little-endian. Two values have the same bytes exactly when they are equal (with
// -0.0 apart from 0.0), on every machine and whatever the file format does.

#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "autodist/base/digest.h"
#include "autodist/base/id.h"
#include "autodist/base/units.h"

namespace autodist::ir {

class Canonical {
 public:
  void add(std::uint64_t integer) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<char>((integer >> shift) & 0xFF));
    }
  }
  void add(std::int64_t integer) { add(static_cast<std::uint64_t>(integer)); }
  void add(std::uint32_t integer) { add(std::uint64_t{integer}); }
  void add(bool flag) { bytes_.push_back(flag ? 1 : 0); }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    bytes_.append(text);
  }
  void add(const std::string& text) { add(std::string_view(text)); }
  void add(const char*) = delete;
  void add(const Digest& digest) {
    add(digest.high);
    add(digest.low);
  }
  template <typename Tag>
  void add(Id<Tag> id) {
    add(id.value);
  }
  template <typename Tag, typename Rep>
  void add(Quantity<Tag, Rep> quantity) {
    add(quantity.value);
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void add(Enum choice) { add(static_cast<std::uint64_t>(choice)); }
  template <typename T>
  void add(const std::optional<T>& maybe) {
    add(maybe.has_value());
    if (maybe) add(*maybe);
  }
  // One after another.
  template <typename... Values>
  void add_each(const Values&... values) {
    (add(values), ...);
  }
  // `add_item(item)` adds one.
  template <typename Items, typename AddItem>
  void add_all(const Items& items, AddItem add_item) {
    add(std::uint64_t{items.size()});
    for (const auto& item : items) add_item(item);
  }
  template <typename T>
  void add(const std::vector<T>& items) {
    add_all(items, [&](const T& item) { add(item); });
  }

  [[nodiscard]] Digest digest() const { return autodist::digest_of(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace autodist::ir
