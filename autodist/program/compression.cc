#include "autodist/program/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace autodist::program {

std::string to_string(const Compression& compression) {
  std::string text = traits_of(compression.codec).name;
  if (compression.codec == Codec::kNone) return text;
  if (compression.codec == Codec::kTopK) text += fmt::format("({})", compression.density);
  if (compression.codec == Codec::kPowerSgd) {
    text += fmt::format("({}{})", compression.rank, compression.warm_start ? "" : ",cold");
  }
  return text + (compression.error_feedback ? "+ef" : "");
}

bool encodes(const Compression& compression, DType dtype) {
  const CodecTraits& traits = traits_of(compression.codec);
  return traits.unit != EncodedUnit::kNone && traits.element_bytes < size_of(dtype);
}

std::int64_t kept(const Compression& compression, std::int64_t elements) {
  const auto share =
      static_cast<std::int64_t>(std::ceil(compression.density * static_cast<double>(elements)));
  return std::clamp<std::int64_t>(share, std::min<std::int64_t>(1, elements), elements);
}

MatrixShape matrix_of(const std::vector<std::int64_t>& shape) {
  if (shape.size() < 2) return {};
  MatrixShape matrix{shape.front(), 1};
  for (std::size_t i = 1; i < shape.size(); ++i) matrix.columns *= shape[i];
  return matrix;
}

std::optional<std::int64_t> factor_rank(const Compression& compression, MatrixShape shape) {
  if (compression.codec != Codec::kPowerSgd) return {};
  const std::int64_t rank = compression.rank;
  if (2 * (shape.rows + shape.columns) * rank >= shape.rows * shape.columns) return {};
  return rank;
}

std::int64_t contribution_bytes(const Compression& compression, DType dtype,
                                std::int64_t elements) {
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kPlace = 4;
  switch (compression.codec) {
    case Codec::kNone:
    case Codec::kPowerSgd:  // factors are no elements of the gradient: Collective counts them
      break;
    case Codec::kFp16:
    case Codec::kBf16: {
      const auto encoded = static_cast<std::int64_t>(traits_of(compression.codec).element_bytes);
      return elements * std::min(width, encoded);
    }
    case Codec::kTopK:
      return std::min(elements * width, kept(compression, elements) * (kPlace + width));
  }
  return elements * width;
}

}  // namespace autodist::program
