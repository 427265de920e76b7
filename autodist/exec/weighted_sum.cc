#include "autodist/exec/weighted_sum.h"

#include <algorithm>
#include <array>

#include "autodist/exec/half_float.h"

namespace autodist::exec {
namespace {

// Accumulators of one block stay in the first-level cache while every term passes over them.
constexpr std::int64_t kBlock = 2048;

template <typename T>
void start(T weight, const T* __restrict__ from, std::int64_t count, T* __restrict__ sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = weight * from[i];
}

template <typename T>
void add(T weight, const T* __restrict__ from, std::int64_t count, T* __restrict__ sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += weight * from[i];
}

template <typename T>
void sum_full_width(const std::vector<Term>& terms, std::int64_t count, T* out) {
  std::array<T, kBlock> sum;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    if (terms.empty()) sum.fill(T(0));
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const T* from = elements_at<T>(terms[i].data) + begin;
      const T weight = static_cast<T>(terms[i].weight);
      i == 0 ? start(weight, from, length, sum.data()) : add(weight, from, length, sum.data());
    }
    std::copy_n(sum.data(), length, out + begin);
  }
}

template <typename Half>
void sum_half_width(const std::vector<Term>& terms, std::int64_t count, Half* out) {
  std::array<float, kBlock> sum;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    sum.fill(0);
    for (const Term& term : terms) {
      const Half* from = elements_at<Half>(term.data) + begin;
      const auto weight = static_cast<float>(term.weight);
      for (std::int64_t i = 0; i < length; ++i) sum[i] += weight * widen(from[i]);
    }
    for (std::int64_t i = 0; i < length; ++i) out[begin + i] = narrow<Half>(sum[i]);
  }
}

// Eight running sums: fixed by `count` alone, and free of the latency of one.
template <typename T>
double squares(const T* data, std::int64_t count) {
  std::array<double, 8> sum{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::int64_t lane = 0; lane < 8; ++lane) {
      const auto value = static_cast<double>(widen(data[i + lane]));
      sum[lane] += value * value;
    }
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(widen(data[i]));
    sum[lane] += value * value;
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

}  // namespace

void weighted_sum(const std::vector<Term>& terms, DType dtype, std::int64_t count, std::byte* out) {
  with_element_type(dtype, [&](auto element) {
    using T = decltype(element);
    T* to = elements_at<T>(out);
    if constexpr (sizeof(T) == 2) {
      sum_half_width(terms, count, to);
    } else {
      sum_full_width(terms, count, to);
    }
  });
}

void scale(double factor, DType dtype, std::int64_t count, std::byte* data) {
  with_element_type(dtype, [&](auto element) {
    using T = decltype(element);
    using Wide = decltype(widen(T{}));
    T* values = elements_at<T>(data);
    const auto by = static_cast<Wide>(factor);
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = narrow<T>(widen(values[i]) * by);
    }
  });
}

double sum_of_squares(const std::byte* data, DType dtype, std::int64_t count) {
  return with_element_type(
      dtype, [&](auto element) { return squares(elements_at<decltype(element)>(data), count); });
}

}  // namespace autodist::exec
