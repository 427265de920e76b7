#include "autodist/capture/unwritten.h"

#include <cstdint>

namespace autodist::capture {
namespace {

// The pattern: words, and in less memory than one has, bytes. No Boolean, no usual number of any
// type but those of one byte, and a finite one of every floating-point type.
constexpr std::int64_t kUnwritten = 0x4B1D3A2E4C5F2B3D;
constexpr std::int64_t kUnwrittenByte = 0x4B;

// A tensor's memory by words, or bytes; none where what is unwritten could not be told.
at::Tensor units_of(const at::Tensor& tensor) {
  const bool has_memory = tensor.layout() == at::kStrided && !tensor.is_meta();
  const auto bytes = static_cast<std::int64_t>(has_memory ? tensor.storage().nbytes() : 0);
  const auto words = bytes / static_cast<std::int64_t>(sizeof(kUnwritten));
  const bool by_words = words > 0;
  const bool of_bytes = tensor.scalar_type() == at::kByte || tensor.scalar_type() == at::kChar;
  const at::ScalarType unit = by_words ? at::kLong : at::kByte;
  const at::Tensor none = at::empty({0}, at::TensorOptions(unit).device(tensor.device()));
  if (bytes == 0 || (!by_words && of_bytes)) return none;
  return none.set_(tensor.storage(), 0, {by_words ? words : bytes}, {1});
}

std::int64_t unwritten(const at::Tensor& units) {
  return units.scalar_type() == at::kLong ? kUnwritten : kUnwrittenByte;
}

}  // namespace

void leave_unwritten(const at::Tensor& tensor) {
  const at::Tensor units = units_of(tensor);
  units.fill_(unwritten(units));
}

bool is_unwritten(const at::Tensor& tensor) {
  const at::Tensor units = units_of(tensor);
  return units.numel() > 0 && units.eq(unwritten(units)).all().item<bool>();
}

}  // namespace autodist::capture
