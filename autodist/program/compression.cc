#include "autodist/program/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace autodist::program {

std::string to_string(const Compression& compression) {
  std::string text;
  switch (compression.codec) {
    case Codec::kNone:
      return "";
    case Codec::kFp16:
      text = "fp16";
      break;
    case Codec::kBf16:
      text = "bf16";
      break;
    case Codec::kTopK:
      text = fmt::format("topk({})", compression.density);
      break;
    case Codec::kPowerSgd:
      text = fmt::format("powersgd({}{})", compression.rank, compression.warm_start ? "" : ",cold");
      break;
  }
  return text + (compression.error_feedback ? "+ef" : "");
}

bool encodes(const Compression& compression, DType dtype) {
  if (compression.codec == Codec::kNone) return false;
  return !casts(compression.codec) || size_of(dtype) > sizeof(std::uint16_t);
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
  constexpr std::int64_t kHalf = 2;
  constexpr std::int64_t kPlace = 4;
  switch (compression.codec) {
    case Codec::kNone:
    case Codec::kPowerSgd:  // factors are no elements of the gradient: Collective counts them
      break;
    case Codec::kFp16:
    case Codec::kBf16:
      return elements * std::min(width, kHalf);
    case Codec::kTopK:
      return std::min(elements * width, kept(compression, elements) * (kPlace + width));
  }
  return elements * width;
}

}  // namespace autodist::program
