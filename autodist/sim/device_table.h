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
  int pcie = 0;  // generation of a GPU's 16 lanes to its host, where its socket is SXM, too
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

// Null where the table does not have the kind. Case, spaces and what a driver adds do not matter:
// "titan x", "NVIDIA A100-SXM4-80GB".
const DeviceRow* known_device(const std::string& kind);

// As known_device(); throws Error(kUsage) with the nearest known kind where that is null.
const DeviceRow& find_device(const std::string& kind, const std::string& where);

// What a listed GPU counts as whose kind the cluster does not say.
inline const std::string kAssumedGpu = "A100";

// Whether the device counts as one: a GPU without a kind or rates of its own.
bool is_assumed(const cluster::Device& device);

// What the cluster says of the device, its rates and its memory else from the table; of a CPU
// without a kind nothing is known but what the cluster says. Throws Error(kUsage) for a kind that
// is not in the table and whose rates the cluster does not say, with the kinds and how to write
// rates.
cluster::DeviceFigures figures_of(const cluster::Device& device, const std::string& where);

// Bytes per second between a GPU's memory and its host's, each way: what the cluster says, else
// what copies reach over PCIe of its kind's generation; of a kind that is not in the table, of 3.0.
double pcie_bytes_per_s(const cluster::DeviceFigures& figures);

// What a process holds of a GPU besides its tensors: CUDA's context with the kernels that a step
// loads. Of the order of what is reported of PyTorch with CUDA 11.7 and newer, which loads kernels
// when they are first called (issues 107667 and 109888 of pytorch/pytorch: 300 and 400 MB); cards
// with more cores hold more.
Bytes context_bytes(const DeviceRow& row);

// The table's row of a kind, with what the figures say in its place; of a kind that the table does
// not have, what they say alone. REQUIRES: has_rates(figures).
DeviceRow row_of(const cluster::DeviceFigures& figures);

// Whether ops can be priced by them.
inline bool has_rates(const cluster::DeviceFigures& figures) {
  return figures.tflops > 0 && figures.memory_bandwidth_bytes_per_s > 0;
}

}  // namespace autodist::sim
