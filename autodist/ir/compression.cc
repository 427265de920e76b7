#include "autodist/ir/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace autodist::ir {

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
  }
  return text + (compression.error_feedback ? "+ef" : "");
}

std::int64_t kept(const Compression& compression, std::int64_t elements) {
  const auto share =
      static_cast<std::int64_t>(std::ceil(compression.density * static_cast<double>(elements)));
  return std::clamp<std::int64_t>(share, std::min<std::int64_t>(1, elements), elements);
}

std::int64_t contribution_bytes(const Compression& compression, DType dtype,
                                std::int64_t elements) {
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kHalf = 2;
  constexpr std::int64_t kPlace = 4;
  switch (compression.codec) {
    case Codec::kNone:
      break;
    case Codec::kFp16:
    case Codec::kBf16:
      return elements * std::min(width, kHalf);
    case Codec::kTopK:
      return std::min(elements * width, kept(compression, elements) * (kPlace + width));
  }
  return elements * width;
}

}  // namespace autodist::ir
