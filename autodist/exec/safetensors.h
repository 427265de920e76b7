// The safetensors format: named tensors as a JSON header and one run of bytes. No torch.
//
//   8 bytes   length of the header, little-endian
//   header    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
//              "__metadata__": {"key": "value"}}
//   bytes     row-major, little-endian

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autodist/base/dtype.h"

namespace autodist::exec {

struct TensorData {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::string bytes;

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
