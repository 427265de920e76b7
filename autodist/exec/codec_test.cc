#include "autodist/exec/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/exec/half_float.h"

namespace autodist::exec {
namespace {

using program::Codec;
using program::Compression;
using program::encodes;

constexpr Compression kFp16{Codec::kFp16, false, 0};
constexpr Compression kFp16Ef{Codec::kFp16, true, 0};
constexpr Compression kBf16Ef{Codec::kBf16, true, 0};
constexpr Compression top_k(double density) { return {Codec::kTopK, true, density}; }

template <typename T>
const std::byte* bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());  // NOLINT
}
template <typename T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());  // NOLINT
}

template <typename T>
DType dtype_of() {
  return sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
}

template <typename T>
comm::Payload encoded(const Compression& compression, const std::vector<T>& values,
                      std::vector<T>* residual = nullptr) {
  return encode(compression, dtype_of<T>(), static_cast<std::int64_t>(values.size()), bytes(values),
                residual == nullptr ? nullptr : bytes(*residual));
}

template <typename T>
std::vector<T> decoded(const Compression& compression, const comm::Payload& payload,
                       std::size_t count) {
  std::vector<T> values(count, T(-1));
  decode(compression, dtype_of<T>(), static_cast<std::int64_t>(count), payload, bytes(values));
  return values;
}

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back((static_cast<float>(generator() % 2000) - 1000.0F) / 977.0F);
  }
  return values;
}

TEST(Casts, HalveFloatsAndRoundToTheNearest) {
  const std::vector<float> values{0, 1, -2.5F, 1.0F / 3, 1e-8F, 65504};
  const comm::Payload payload = encoded(kFp16, values);
  EXPECT_EQ(payload.size, 12U);
  EXPECT_EQ(decoded<float>(kFp16, payload, 6),
            (std::vector<float>{0, 1, -2.5F, 0.33325195F, 0, 65504}));
  const std::vector<double> wide{1.0 / 3, -70.0};
  EXPECT_EQ(decoded<double>(kBf16Ef, encoded(kBf16Ef, wide), 2),
            (std::vector<double>{0.333984375, -70}));
}

TEST(Casts, WhatIsTooLargeBecomesTheLargestFiniteValue) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values{1e6F, -1e6F, infinity, 65519};
  EXPECT_EQ(decoded<float>(kFp16, encoded(kFp16, values), 4),
            (std::vector<float>{65504, -65504, 65504, 65504}));
  const std::vector<float> largest{std::numeric_limits<float>::max(), std::nanf("")};
  const auto back = decoded<float>(kBf16Ef, encoded(kBf16Ef, largest), 2);
  EXPECT_TRUE(std::isfinite(back[0]));
  EXPECT_TRUE(std::isnan(back[1]));
}

// What was sent in all, and what is still owed, is what there was: nothing gets lost.
TEST(Casts, ErrorFeedbackSendsLaterWhatItOwes) {
  constexpr std::size_t kCount = 1000;
  constexpr int kRounds = 50;
  std::vector<float> residual(kCount);
  std::vector<double> wanted(kCount);
  std::vector<double> sent(kCount);
  for (std::uint32_t step = 0; step < kRounds; ++step) {
    const std::vector<float> values = random_values(kCount, step);
    const auto got = decoded<float>(kFp16Ef, encoded(kFp16Ef, values, &residual), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      wanted[i] += values[i];
      sent[i] += got[i];
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(sent[i] + residual[i], wanted[i], 1e-5);
    EXPECT_LT(std::fabs(residual[i]), 1e-3);  // one rounding of a value up to 1, not fifty
  }
}

TEST(TopK, TheLargestLeaveWithTheirPlacesAndTiesGoToTheLowerPlace) {
  const std::vector<float> values{0.5F, -3, 2, -2, 0, 2, 1, 0.25F, 0, 0};
  std::vector<float> residual(10);
  const comm::Payload payload = encoded(top_k(0.3), values, &residual);
  EXPECT_EQ(payload.size, 3U * (4 + 4));
  EXPECT_EQ(decoded<float>(top_k(0.3), payload, 10),
            (std::vector<float>{0, -3, 2, -2, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0.5F, 0, 0, 0, 0, 2, 1, 0.25F, 0, 0}));
  // What stayed behind comes first when nothing new is larger.
  const comm::Payload next = encoded(top_k(0.3), std::vector<float>(10), &residual);
  EXPECT_EQ(decoded<float>(top_k(0.3), next, 10),
            (std::vector<float>{0.5F, 0, 0, 0, 0, 2, 1, 0, 0, 0}));
  EXPECT_EQ(residual[7], 0.25F);
}

TEST(TopK, NeverTakesMoreBytesThanTheElements) {
  const std::vector<double> values{1, 0, -2, 3, 0, 0, 0, 4};
  for (const double density : {0.01, 0.4, 0.7, 1.0}) {
    std::vector<double> residual(values.size());
    const comm::Payload payload = encoded(top_k(density), values, &residual);
    EXPECT_EQ(static_cast<std::int64_t>(payload.size),
              contribution_bytes(top_k(density), DType::kFloat64, 8))
        << density;
    EXPECT_LE(payload.size, values.size() * sizeof(double));
  }
  std::vector<double> residual(values.size());
  EXPECT_EQ(decoded<double>(top_k(1), encoded(top_k(1), values, &residual), 8), values);
}

TEST(TopK, OfASumEveryElementThatIsNotZeroIsSent) {
  std::vector<float> sum(100);
  sum[3] = 1;
  sum[97] = -2;
  const comm::Payload payload = encode_sum(top_k(0.01), DType::kFloat32, 100, bytes(sum), nullptr);
  EXPECT_EQ(payload.size, 2U * 8);
  EXPECT_EQ(decoded<float>(top_k(0.01), payload, 100), sum);
  const std::vector<float> full = random_values(100, 1);
  const comm::Payload dense = encode_sum(top_k(0.01), DType::kFloat32, 100, bytes(full), nullptr);
  EXPECT_EQ(dense.size, 400U);
  EXPECT_EQ(decoded<float>(top_k(0.01), dense, 100), full);
}

TEST(Codecs, RefusePayloadsThatCannotBe) {
  const comm::Payload odd = comm::Payload::copy_of("12345");
  EXPECT_THROW(decoded<float>(kFp16, odd, 2), InternalError);
  EXPECT_THROW(decoded<float>(top_k(0.5), odd, 4), InternalError);
  std::string place_beyond(8, '\0');
  place_beyond[0] = 9;
  EXPECT_THROW(decoded<float>(top_k(0.5), comm::Payload::copy_of(place_beyond), 4), InternalError);
}

// What plans count in bytes, and what sum_digest() believes of a codec: whether a cut of a slice
// changes what arrives.
TEST(Codecs, TakeTheBytesAndTheUnitOfTheirTraits) {
  constexpr std::int64_t kCount = 64;
  const std::vector<float> values = random_values(kCount, 5);
  const std::vector<float> first(values.begin(), values.begin() + kCount / 2);
  const std::vector<float> second(values.begin() + kCount / 2, values.end());
  for (const program::CodecTraits& traits : program::kCodecs) {
    if (traits.unit == program::EncodedUnit::kNone) continue;
    if (traits.unit == program::EncodedUnit::kGradient) continue;  // library_all_reduce_test
    const Compression compression{traits.codec, true, 0.25};
    const auto arrived = [&](const std::vector<float>& sent) {
      std::vector<float> residual(sent.size());
      const comm::Payload payload = encoded(compression, sent, &residual);
      const auto count = static_cast<std::int64_t>(sent.size());
      EXPECT_EQ(payload.size, contribution_bytes(compression, DType::kFloat32, count));
      EXPECT_LT(payload.size, sent.size() * sizeof(float));
      std::vector<float> got = decoded<float>(compression, payload, sent.size());
      for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(got[i] + residual[i], sent[i]);
      return got;
    };
    std::vector<float> in_parts = arrived(first);
    const std::vector<float> rest = arrived(second);
    in_parts.insert(in_parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(in_parts == arrived(values), traits.unit == program::EncodedUnit::kElement)
        << traits.name;
  }
}

TEST(Codecs, LeaveAloneWhatTheyWouldNotMakeSmaller) {
  EXPECT_FALSE(encodes({}, DType::kFloat32));
  EXPECT_FALSE(encodes(kFp16, DType::kBFloat16));
  EXPECT_TRUE(encodes(top_k(0.1), DType::kBFloat16));
  EXPECT_TRUE(encodes(kFp16, DType::kFloat64));
}

}  // namespace
}  // namespace autodist::exec
