// Published figures of devices that are not here.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"

namespace autodist::sim {

struct DeviceRow {
  std::string kind;
  cluster::DeviceKind computes_on = cluster::DeviceKind::kGpu;
  double tflops = 0;      // float32, outside of tensor cores, at the boost clock (CPUs: base clock)
  double memory_gib = 0;  // 0: the machine's
  double memory_gb_per_s = 0;
  std::string source;
  // Of dense products on matrix units; 0: it has none for them. All that have 16-bit ones have
  // fp16's.
  double tf32_tflops = 0;
  double half_tflops = 0;
  bool has_bf16 = false;
  // The share of the clock behind these peaks that a card keeps in a training, by its limits of
  // power and heat: fitted as the shares of sim/precision.h are; 1: not known.
  double sustained = 1;
  bool is_fitted = false;  // trainings on it are among those of docs/benchmarks/gpu-times.md
};

const std::vector<DeviceRow>& device_table();

// Case, spaces and what a driver adds do not matter: "titan x", "NVIDIA A100-SXM4-80GB". Throws
// Error(kUsage) with the nearest known kind.
const DeviceRow& find_device(const std::string& kind, const std::string& where);

// What a listed GPU counts as whose kind the cluster does not say.
inline const std::string kAssumedGpu = "A100";

// Whether the device counts as one: a GPU without a kind or rates of its own.
bool is_assumed(const cluster::Device& device);

// What the cluster says of the device, the rest from the table; of a CPU without a kind nothing is
// known but what the cluster says. Throws Error(kUsage) for a kind that is not in the table and
// whose rates the cluster does not say, with the kinds and how to write rates.
cluster::DeviceFigures figures_of(const cluster::Device& device, const std::string& where);

// The table's row of a kind, with what the figures say in its place; of a kind that the table does
// not have, what they say alone. REQUIRES: has_rates(figures).
DeviceRow row_of(const cluster::DeviceFigures& figures);

// Whether ops can be priced by them.
inline bool has_rates(const cluster::DeviceFigures& figures) {
  return figures.tflops > 0 && figures.memory_bandwidth_bytes_per_s > 0;
}

}  // namespace autodist::sim
