// Quantities with their unit in the type: seconds cannot be added to bytes.

#pragma once

#include <cstdint>
#include <string>

namespace autodist {

template <typename Tag, typename Rep>
struct Quantity {
  Rep value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}

  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator*(Quantity a, Rep b) { return Quantity(a.value * b); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
  friend constexpr bool operator==(Quantity a, Quantity b) { return a.value == b.value; }
  friend constexpr bool operator!=(Quantity a, Quantity b) { return a.value != b.value; }
  friend constexpr bool operator<(Quantity a, Quantity b) { return a.value < b.value; }
  friend constexpr bool operator<=(Quantity a, Quantity b) { return a.value <= b.value; }
  friend constexpr bool operator>(Quantity a, Quantity b) { return a.value > b.value; }
  friend constexpr bool operator>=(Quantity a, Quantity b) { return a.value >= b.value; }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;

// Rates of links are told in Gbit/s.
inline constexpr double kBytesPerGigabit = 1e9 / 8;

// "1.5 MiB", "12.3 ms": for people. Machines get the plain number with the unit in its name.
std::string to_string(Bytes bytes);
std::string to_string(Seconds seconds);

}  // namespace autodist
