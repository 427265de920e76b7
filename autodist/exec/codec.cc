#include "autodist/exec/codec.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <type_traits>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/half_float.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

using program::Codec;
using program::Compression;
using Place = std::uint32_t;

// Calls visit(Half{}, the largest finite value) for a cast.
template <typename Visit>
auto with_half_type(Codec codec, Visit visit) {
  if (codec == Codec::kFp16) return visit(Float16{}, 65504.0F);
  return visit(BFloat16{}, float_of(0x7f7f0000U));
}

template <typename Half, typename T>
void cast(const T* values, T* residual, std::int64_t count, float largest, Half* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T wanted = residual == nullptr ? values[i] : values[i] + residual[i];
    const auto limit = static_cast<T>(largest);
    // Not std::clamp: NaN must stay NaN.
    const T inside = wanted > limit ? limit : wanted < -limit ? -limit : wanted;
    out[i] = narrow<Half>(static_cast<float>(inside));
    if (residual != nullptr) residual[i] = wanted - static_cast<T>(widen(out[i]));
  }
}

comm::Payload encode_cast(const Compression& compression, DType dtype, std::int64_t count,
                          const std::byte* values, std::byte* residual) {
  const std::size_t size = count * sizeof(Float16);
  std::shared_ptr<std::byte> out = allocate_aligned(size);
  with_half_type(compression.codec, [&](auto half, float largest) {
    using Half = decltype(half);
    if (dtype == DType::kFloat64) {
      cast(elements_at<double>(values), elements_at<double>(residual), count, largest,
           elements_at<Half>(out.get()));
    } else {
      cast(elements_at<float>(values), elements_at<float>(residual), count, largest,
           elements_at<Half>(out.get()));
    }
  });
  return {out.get(), size, out};
}

void decode_cast(const Compression& compression, DType dtype, std::int64_t count,
                 const comm::Payload& payload, std::byte* values) {
  with_half_type(compression.codec, [&](auto half, float) {
    const auto* from = elements_at<decltype(half)>(payload.data);
    for (std::int64_t i = 0; i < count; ++i) {
      if (dtype == DType::kFloat64) {
        elements_at<double>(values)[i] = widen(from[i]);
      } else {
        elements_at<float>(values)[i] = widen(from[i]);
      }
    }
  });
}

// Larger for a larger magnitude, NaN above all: the bits without the sign.
template <typename T>
std::uint64_t magnitude(const T& value) {
  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>
      bits;
  std::memcpy(&bits, &value, sizeof bits);
  constexpr int kSign = 8 * sizeof bits - 1;
  return std::uint64_t{bits} & ~(std::uint64_t{1} << kSign);
}

// The places, ascending, then the elements there.
template <typename T>
comm::Payload pack_places(const std::vector<Place>& places, const T* values) {
  const std::size_t size = places.size() * (sizeof(Place) + sizeof(T));
  std::shared_ptr<std::byte> out = allocate_aligned(size);
  if (size == 0) return {out.get(), 0, out};
  std::memcpy(out.get(), places.data(), places.size() * sizeof(Place));
  std::byte* to = out.get() + places.size() * sizeof(Place);
  for (const Place place : places) {
    std::memcpy(to, values + place, sizeof(T));
    to += sizeof(T);
  }
  return {out.get(), size, out};
}

template <typename T>
bool gains(std::size_t places, std::int64_t count) {
  return places * (sizeof(Place) + sizeof(T)) < count * sizeof(T);
}

template <typename T>
comm::Payload encode_top_k(std::int64_t keep, std::int64_t count, const T* values, T* residual) {
  std::vector<T> wanted(values, values + count);
  for (std::int64_t i = 0; residual != nullptr && i < count; ++i) {
    wanted[i] = narrow<T>(widen(wanted[i]) + widen(residual[i]));
  }
  if (!gains<T>(keep, count)) {
    if (residual != nullptr) std::fill_n(residual, count, T{});
    return aligned_copy(wanted.data(), count * sizeof(T));
  }
  std::vector<Place> places(count);
  std::iota(places.begin(), places.end(), Place{0});
  std::nth_element(places.begin(), places.begin() + keep, places.end(), [&](Place a, Place b) {
    const std::uint64_t left = magnitude(wanted[a]);
    const std::uint64_t right = magnitude(wanted[b]);
    return left != right ? left > right : a < b;
  });
  places.resize(keep);
  std::sort(places.begin(), places.end());
  comm::Payload payload = pack_places(places, wanted.data());
  if (residual != nullptr) {
    for (const Place place : places) wanted[place] = T{};
    std::copy(wanted.begin(), wanted.end(), residual);
  }
  return payload;
}

template <typename T>
comm::Payload encode_nonzero(std::int64_t count, const T* values) {
  std::vector<Place> places;
  for (std::int64_t i = 0; i < count; ++i) {
    if (magnitude(values[i]) != 0) places.push_back(static_cast<Place>(i));
  }
  return gains<T>(places.size(), count) ? pack_places(places, values)
                                        : aligned_copy(values, count * sizeof(T));
}

template <typename T>
void decode_places(std::int64_t count, const comm::Payload& payload, T* values) {
  if (payload.size == count * sizeof(T)) {
    std::memcpy(values, payload.data, payload.size);
    return;
  }
  const std::size_t kept = payload.size / (sizeof(Place) + sizeof(T));
  AD_CHECK(payload.size % (sizeof(Place) + sizeof(T)) == 0 && gains<T>(kept, count))
      << payload.size << " bytes for " << count << " elements";
  std::fill_n(values, count, T{});
  const std::byte* from = payload.data + kept * sizeof(Place);
  for (std::size_t i = 0; i < kept; ++i) {
    Place place = 0;
    std::memcpy(&place, payload.data + i * sizeof(Place), sizeof place);
    AD_CHECK(place < count) << "place " << place << " of " << count;
    std::memcpy(values + place, from + i * sizeof(T), sizeof(T));
  }
}

}  // namespace

comm::Payload encode(const Compression& compression, DType dtype, std::int64_t count,
                     const std::byte* values, std::byte* residual) {
  AD_CHECK(encodes(compression, dtype) && count <= std::numeric_limits<Place>::max()) << count;
  if (traits_of(compression.codec).unit == program::EncodedUnit::kElement) {
    return encode_cast(compression, dtype, count, values, residual);
  }
  AD_CHECK(compression.codec == Codec::kTopK) << to_string(compression) << " of a slice";
  return with_element_type(dtype, [&](auto element) {
    using T = decltype(element);
    return encode_top_k<T>(kept(compression, count), count, elements_at<T>(values),
                           elements_at<T>(residual));
  });
}

comm::Payload encode_sum(const Compression& compression, DType dtype, std::int64_t count,
                         const std::byte* values, std::byte* residual) {
  if (compression.codec != Codec::kTopK) {
    return encode(compression, dtype, count, values, residual);
  }
  return with_element_type(dtype, [&](auto element) {
    return encode_nonzero(count, elements_at<decltype(element)>(values));
  });
}

void decode(const Compression& compression, DType dtype, std::int64_t count,
            const comm::Payload& payload, std::byte* values) {
  if (compression.codec == Codec::kTopK) {
    with_element_type(dtype, [&](auto element) {
      decode_places(count, payload, elements_at<decltype(element)>(values));
    });
    return;
  }
  AD_CHECK(encodes(compression, dtype) && payload.size == count * sizeof(Float16))
      << payload.size << " bytes for " << count << " elements";
  decode_cast(compression, dtype, count, payload, values);
}

comm::Payload decoded(const Compression& compression, DType dtype, std::int64_t count,
                      comm::Payload payload) {
  if (!encodes(compression, dtype)) return payload;
  const std::size_t size = count * size_of(dtype);
  std::shared_ptr<std::byte> values = allocate_aligned(size);
  decode(compression, dtype, count, payload, values.get());
  return {values.get(), size, values};
}

}  // namespace autodist::exec
