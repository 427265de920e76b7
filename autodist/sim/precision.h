// In which numbers a step computes, and what a GPU's kernels reach in them: products and
// convolutions run on its matrix units, the rest at the speed of its memory.

#pragma once

#include <cstdint>
#include <string>

#include "autodist/ir/graph.h"
#include "autodist/sim/device_table.h"

namespace autodist::sim {

enum class Precision : std::uint8_t {
  kAsCaptured,  // each op's own type; float32 outside of matrix units
  kFp32,        // float32 outside of matrix units
  kTf32,        // products of float32 on matrix units, ten bits of mantissa
  kBf16,        // autocast: products, and what follows them, in 16 bits; parameters in float32
  kFp16,
};

inline bool is_16_bit(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kFp16;
}

// "fp32", "tf32", "bf16", "fp16"; "as captured".
std::string name_of(Precision precision);
// The inverse of the first four. Throws Error(kUsage) with the nearest.
Precision precision_from_name(const std::string& name);

// Bytes that the op reads and writes. Op::bytes_moved counts the tensors that it names; what only
// allocates touches none of them, so of it they are 0, as of a view.
double bytes_moved(const ir::Op& op, std::int64_t batch);

// Times of ops on one kind of GPU. What kernels reach of its peaks is fitted on published trainings
// (docs/benchmarks/gpu-times.md), which run fused and tuned software.
class FittedTimes {
 public:
  // Throws Error(kUsage) where the device has no units for the precision. REQUIRES: not
  // kAsCaptured.
  FittedTimes(const DeviceRow& device, Precision precision);

  // An op of this graph, which was captured in float32, takes so long in the precision, and never
  // longer than in float32, whose kernels remain. A view takes nothing, and so does what only
  // allocates.
  [[nodiscard]] Seconds of(const ir::Graph& graph, const ir::Op& op, std::int64_t batch) const;
  // What was fitted, for whoever shows a prediction.
  [[nodiscard]] std::string said() const;

 private:
  std::string kind_;
  bool is_fitted_;  // on trainings on such a card
  Precision precision_;
  double flop_per_s_;  // of what runs outside of matrix units
  double product_flop_per_s_;
  double convolution_flop_per_s_;
  double winograd_flop_per_s_;  // of convolutions of 3 x 3, outside of matrix units
  double bytes_per_s_;
};

}  // namespace autodist::sim
