// Numbers in texts.

#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace autodist {

// The number that all of `text` is; nothing where there is none, where it does not fit, or where
// anything stands beside it.
template <typename Number>
std::optional<Number> as_number(std::string_view text) {
  Number value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

}  // namespace autodist
