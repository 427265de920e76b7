// Strong ids: an OpId cannot be passed where a ValueId is wanted.

#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <ostream>

namespace autodist {

// An index into the table that Tag names. Ordered, hashable, printable; no arithmetic.
template <typename Tag>
struct Id {
  std::uint32_t value = 0;

  constexpr Id() = default;
  template <typename Integer>
  constexpr explicit Id(Integer v) : value(static_cast<std::uint32_t>(v)) {}

  friend constexpr bool operator==(Id a, Id b) { return a.value == b.value; }
  friend constexpr bool operator!=(Id a, Id b) { return a.value != b.value; }
  friend constexpr bool operator<(Id a, Id b) { return a.value < b.value; }
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value; }
};

}  // namespace autodist

template <typename Tag>
struct std::hash<autodist::Id<Tag>> {
  std::size_t operator()(autodist::Id<Tag> id) const noexcept { return id.value; }
};

template <typename Tag>
struct fmt::formatter<autodist::Id<Tag>> : fmt::formatter<std::uint32_t> {
  template <typename Context>
  auto format(autodist::Id<Tag> id, Context& context) const {
    return fmt::formatter<std::uint32_t>::format(id.value, context);
  }
};
