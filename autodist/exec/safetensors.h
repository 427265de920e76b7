// The safetensors format: named tensors as a JSON header and one run of bytes. No torch.
//
//   8 bytes   length of the header, little-endian
//   header    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
//              "__metadata__": {"key": "value"}}
//   bytes     row-major, little-endian

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autodist/base/dtype.h"

namespace autodist::exec {

// Bytes that nobody changes any more: of a string, or where somebody else keeps them.
class TensorBytes {
 public:
  TensorBytes() = default;
  TensorBytes(std::string bytes) {  // NOLINT(google-explicit-constructor): a string is such bytes
    auto own = std::make_shared<const std::string>(std::move(bytes));
    bytes_ = *own;
    keep_ = std::move(own);
  }
  TensorBytes(std::string_view bytes, std::shared_ptr<const void> keep)
      : bytes_(bytes), keep_(std::move(keep)) {}

  operator std::string_view() const {  // NOLINT(google-explicit-constructor)
    return bytes_;
  }
  [[nodiscard]] const char* data() const { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  friend bool operator==(const TensorBytes& a, const TensorBytes& b) {
    return a.bytes_ == b.bytes_;
  }

 private:
  std::string_view bytes_;
  std::shared_ptr<const void> keep_;
};

struct TensorData {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  TensorBytes bytes;

  friend bool operator==(const TensorData& a, const TensorData& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
  }
};

struct Safetensors {
  std::vector<TensorData> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// REQUIRES: distinct names; bytes of the shape's size.
std::string write_safetensors(const Safetensors& file);
// What comes before the tensors' bytes. REQUIRES: as write_safetensors().
std::string safetensors_head(const std::vector<TensorData>& tensors,
                             const std::map<std::string, std::string>& metadata);

// Throws Error(kCheckpoint), prefixed with `where`: truncated, a header that is no JSON or too
// long, unknown dtypes, offsets that overlap, leave gaps or do not match the shape, names that
// stand twice.
Safetensors read_safetensors(const std::string& bytes, const std::string& where);

}  // namespace autodist::exec
