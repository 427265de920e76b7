// Numbers and times in texts.

#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "autodist/base/units.h"

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

// "10s", "500ms" or "2m": above 0, and at most ten million seconds.
inline std::optional<Seconds> as_duration(std::string_view text) {
  using Unit = std::pair<std::string_view, double>;
  for (const auto& [unit, seconds] : {Unit{"ms", 1e-3}, Unit{"s", 1}, Unit{"m", 60}}) {
    if (text.size() < unit.size() || text.substr(text.size() - unit.size()) != unit) continue;
    const auto number = as_number<double>(text.substr(0, text.size() - unit.size()));
    if (number && *number > 0 && *number * seconds <= 1e7) return Seconds(*number * seconds);
  }
  return std::nullopt;
}

}  // namespace autodist
