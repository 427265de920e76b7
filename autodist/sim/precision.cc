#include "autodist/sim/precision.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/ir/op_classes.h"

namespace autodist::sim {
namespace {

constexpr std::array<std::pair<Precision, const char*>, 4> kNames{{{Precision::kFp32, "fp32"},
                                                                   {Precision::kTf32, "tf32"},
                                                                   {Precision::kBf16, "bf16"},
                                                                   {Precision::kFp16, "fp16"}}};

// Shares of the peaks, fitted: of matrix products, of convolutions, and of the memory's bandwidth.
// cuDNN's convolutions in TF32 and the layout of PyTorch reach a quarter.
struct Shares {
  double product;
  double convolution;
};
constexpr Shares kFp32Shares{0.9, 0.65};
constexpr Shares kTf32Shares{0.85, 0.25};
constexpr Shares k16BitShares{0.85, 0.5};
// cuDNN computes convolutions of 3 x 3 in steps of one with fewer multiplications than they have
// (Lavin and Gray, arXiv 1509.09308): outside of matrix units, so much faster than others.
constexpr double kWinograd = 2.7;
constexpr double kElsewhere = 0.5;
constexpr double kMemory = 0.7;
constexpr Seconds kKernelStart{5e-6};

bool is_by_winograd(const ir::Graph& graph, const ir::Op& op) {
  // Behind the tensors and the bias come the strides, the padding, the dilation, whether it is
  // transposed, the padding of its output, and the groups.
  const bool is_backward = op.name == "aten::convolution_backward";
  if (!is_backward && op.name != "aten::convolution") return false;
  const auto* weight = std::get_if<ir::ValueId>(&op.arguments.at(is_backward ? 2 : 1));
  const std::size_t lists = is_backward ? 4 : 3;
  const std::vector<ir::Affine> ones{{0, 1}, {0, 1}};
  const auto are_ones = [&](std::size_t at) {
    const auto* list = std::get_if<std::vector<ir::Affine>>(&op.arguments.at(at));
    return list != nullptr && *list == ones;
  };
  const auto* groups = std::get_if<ir::Affine>(&op.arguments.at(lists + 5));
  const bool is_whole = groups != nullptr && *groups == ir::Affine{0, 1};
  if (weight == nullptr || !is_whole || !are_ones(lists) || !are_ones(lists + 2)) return false;
  const std::vector<ir::Affine>& sizes = graph.value(*weight).type.sizes;
  constexpr ir::Affine kThree{0, 3};
  return sizes.size() == 4 && sizes[2] == kThree && sizes[3] == kThree;
}

// The peak of the device's matrix units in TFLOP/s; of fp32 that outside of them.
double peak_of(const DeviceRow& device, Precision precision) {
  switch (precision) {
    case Precision::kTf32:
      return device.tf32_tflops;
    case Precision::kBf16:
      return device.has_bf16 ? device.half_tflops : 0;
    case Precision::kFp16:
      return device.half_tflops;
    default:
      return device.tflops;
  }
}

}  // namespace

std::string name_of(Precision precision) {
  for (const auto& [known, name] : kNames) {
    if (known == precision) return name;
  }
  return "as captured";
}

Precision precision_from_name(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [precision, each] : kNames) {
    if (name == each) return precision;
    known.emplace_back(each);
  }
  fail(ErrorCode::kUsage, "--dtype: unknown '{}', one of {} expected{}", name,
       fmt::join(known, ", "), nearest_hint(name, known));
}

FittedTimes::FittedTimes(const DeviceRow& device, Precision precision)
    : kind_(device.kind),
      is_fitted_(device.is_fitted),
      precision_(precision),
      flop_per_s_(device.tflops * 1e12 * device.sustained * kElsewhere),
      bytes_per_s_(device.memory_gb_per_s * 1e9 * kMemory) {
  const double peak = peak_of(device, precision) * 1e12 * device.sustained;
  if (peak == 0) {
    std::vector<std::string> can;
    for (const auto& [each, name] : kNames) {
      if (peak_of(device, each) > 0) can.emplace_back(name);
    }
    fail(ErrorCode::kUsage,
         "--dtype {}: {} has no matrix units for it; {} expected. Of a card that has some, say so: "
         "`devices: {{{}_tflops: …}}` in the cluster file.",
         name_of(precision), device.kind, fmt::join(can, " or "),
         is_16_bit(precision) ? "half" : "tf32");
  }
  const Shares& shares = is_16_bit(precision)            ? k16BitShares
                         : precision == Precision::kTf32 ? kTf32Shares
                                                         : kFp32Shares;
  const double outside = device.tflops * 1e12 * device.sustained;
  product_flop_per_s_ = std::max(peak * shares.product, outside * kFp32Shares.product);
  convolution_flop_per_s_ = std::max(peak * shares.convolution, outside * kFp32Shares.convolution);
  winograd_flop_per_s_ = outside * kFp32Shares.convolution * kWinograd;
}

double bytes_moved(const ir::Op& op, std::int64_t batch) {
  const auto bytes = static_cast<double>(op.bytes_moved.at(batch));
  return bytes == 0 || ir::leaves_uninitialised(op.name) ? 0 : bytes;
}

Seconds FittedTimes::of(const ir::Graph& graph, const ir::Op& op, std::int64_t batch) const {
  const auto flops = static_cast<double>(op.flops.at(batch));
  double bytes = bytes_moved(op, batch);
  if (bytes == 0 && flops == 0) return {};
  if (is_16_bit(precision_) && !ir::stays_in_float32(op)) bytes /= 2;
  double rate = ir::is_convolution(op) ? convolution_flop_per_s_
                : ir::is_product(op)   ? product_flop_per_s_
                                       : flop_per_s_;
  if (is_by_winograd(graph, op)) rate = std::max(rate, winograd_flop_per_s_);
  return kKernelStart + Seconds(std::max(flops / rate, bytes / bytes_per_s_));
}

std::string FittedTimes::said() const {
  return fmt::format(
      "times on {} in {}: fitted on published trainings {}({:.0f} TFLOP/s in products, {:.0f} in "
      "convolutions, {:.0f} GB/s){}",
      kind_, name_of(precision_), is_fitted_ ? "" : "on A100 and V100, none on this card ",
      product_flop_per_s_ / 1e12, convolution_flop_per_s_ / 1e12, bytes_per_s_ / 1e9,
      is_16_bit(precision_) ? "; activations as under autocast" : "");
}

}  // namespace autodist::sim
