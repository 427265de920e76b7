#include "autodist/base/units.h"

#include <fmt/format.h>

#include <cmath>

namespace autodist {

std::string to_string(Bytes bytes) {
  const double value = static_cast<double>(bytes.value);
  if (std::abs(value) < 1024) return fmt::format("{} B", bytes.value);
  if (std::abs(value) < 1024.0 * 1024) return fmt::format("{:.1f} KiB", value / 1024);
  if (std::abs(value) < 1024.0 * 1024 * 1024) return fmt::format("{:.1f} MiB", value / 1024 / 1024);
  return fmt::format("{:.2f} GiB", value / 1024 / 1024 / 1024);
}

std::string to_string(Seconds seconds) {
  const double value = seconds.value;
  if (std::abs(value) < 1e-3) return fmt::format("{:.1f} us", value * 1e6);
  if (std::abs(value) < 1) return fmt::format("{:.2f} ms", value * 1e3);
  return fmt::format("{:.2f} s", value);
}

}  // namespace autodist
