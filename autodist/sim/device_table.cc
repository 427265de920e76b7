#include "autodist/sim/device_table.h"

#include <fmt/format.h>

#include <cctype>
#include <set>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"

namespace autodist::sim {
namespace {

using cluster::DeviceKind;

// Letters and digits, without the words by which a driver names the maker, the brand and the socket
// and the memory's kind.
std::string plain(const std::string& kind) {
  static const std::set<std::string> kBesides{"nvidia", "tesla", "geforce", "sxm2", "sxm3", "sxm4",
                                              "sxm5",   "hbm2",  "hbm2e",   "hbm3", "hbm3e"};
  std::string text;
  std::string word;
  for (const char c : kind + ' ') {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (kBesides.count(word) == 0) text += word;
    word.clear();
  }
  return text;
}

}  // namespace

// GPUs: float32 outside of tensor cores, at the clock that the maker's own figure takes: cores *
// clock * 2; on tensor cores what the same sheets say of dense products. CPUs: cores * base clock *
// float32 operations per cycle (two fused multiply-adds on 256 bits are 32, on 512 bits 64), and
// channels * transfer rate * 8 bytes. what_if_test.cc works all of them out again.
const std::vector<DeviceRow>& device_table() {
  static const std::vector<DeviceRow> table{
      {"M60", DeviceKind::kGpu, 4.8, 8, 160, 3,
       "NVIDIA Tesla M60 data sheet, one of its two GPUs: 2048 cores, 1.178 GHz"},
      {"TITAN X", DeviceKind::kGpu, 6.6, 12, 336.5, 3,
       "NVIDIA GeForce GTX TITAN X specification: 3072 cores, 1.075 GHz"},
      {"TITAN X Pascal", DeviceKind::kGpu, 11.0, 12, 480, 3,
       "NVIDIA TITAN X (2016) specification: 3584 cores, 1.531 GHz"},
      {"P4000", DeviceKind::kGpu, 5.3, 8, 243, 3,
       "NVIDIA Quadro P4000 data sheet: 1792 cores, 1.48 GHz"},
      {"P100", DeviceKind::kGpu, 10.6, 16, 732, 3,
       "NVIDIA Tesla P100 SXM2 data sheet: 3584 cores, 1.48 GHz", 0, 0, false, 0.8, true},
      {"T4", DeviceKind::kGpu, 8.1, 16, 320, 3, "NVIDIA T4 data sheet: 2560 cores, 1.59 GHz", 0, 65,
       false, 0.52, true},
      {"V100", DeviceKind::kGpu, 15.7, 16, 900, 3,
       "NVIDIA V100 SXM2 data sheet: 5120 cores, 1.53 GHz", 0, 125, false, 1, true},
      {"V100 32GB", DeviceKind::kGpu, 15.7, 32, 900, 3,
       "NVIDIA V100 SXM2 data sheet: 5120 cores, 1.53 GHz", 0, 125, false, 1, true},
      {"A100", DeviceKind::kGpu, 19.5, 40, 1555, 4,
       "NVIDIA A100 SXM4 40 GB data sheet: 6912 cores, 1.41 GHz", 156, 312, true, 1, true},
      {"A100 80GB", DeviceKind::kGpu, 19.5, 80, 2039, 4,
       "NVIDIA A100 SXM4 80 GB data sheet: 6912 cores, 1.41 GHz", 156, 312, true, 1, true},
      {"H100", DeviceKind::kGpu, 67, 80, 3350, 5,
       "NVIDIA H100 SXM data sheet: 16896 cores, 1.98 GHz", 495, 989, true, 0.65, true},
      {"H100 PCIe", DeviceKind::kGpu, 51.2, 80, 2039, 5,
       "NVIDIA H100 PCIe data sheet: 14592 cores, 1.755 GHz", 378, 756, true, 0.65},
      {"H200", DeviceKind::kGpu, 67, 141, 4800, 5,
       "NVIDIA H200 SXM data sheet: 16896 cores, 1.98 GHz", 495, 989, true, 0.65},
      {"A10", DeviceKind::kGpu, 31.2, 24, 600, 4, "NVIDIA A10 data sheet: 9216 cores, 1.695 GHz",
       62.5, 125, true},
      {"L4", DeviceKind::kGpu, 30.3, 24, 300, 4, "NVIDIA L4 data sheet: 7424 cores, 2.04 GHz", 60,
       121, true},
      {"L40S", DeviceKind::kGpu, 91.6, 48, 864, 4, "NVIDIA L40S data sheet: 18176 cores, 2.52 GHz",
       183, 362, true},
      {"RTX A6000", DeviceKind::kGpu, 38.7, 48, 768, 4,
       "NVIDIA RTX A6000 data sheet: 10752 cores, 1.8 GHz", 77.4, 154.8, true},
      {"GTX 1080 Ti", DeviceKind::kGpu, 11.3, 11, 484, 3,
       "NVIDIA GeForce GTX 1080 Ti specification: 3584 cores, 1.582 GHz"},
      {"RTX 2080 Ti", DeviceKind::kGpu, 13.4, 11, 616, 3,
       "NVIDIA Turing architecture white paper: 4352 cores, 1.545 GHz; products that add up in "
       "float32",
       0, 53.8},
      {"RTX 3090", DeviceKind::kGpu, 35.6, 24, 936, 4,
       "NVIDIA Ampere GA102 white paper: 10496 cores, 1.695 GHz; products that add up in float32",
       35.6, 71, true},
      {"RTX 4090", DeviceKind::kGpu, 82.6, 24, 1008, 4,
       "NVIDIA Ada white paper: 16384 cores, 2.52 GHz; products that add up in float32", 82.6,
       165.2, true},
      {"Xeon E5-2690 v4", DeviceKind::kCpu, 1.16, 0, 76.8, 0,
       "Intel ARK: 14 cores, 2.6 GHz, AVX2, four channels DDR4-2400"},
      {"Xeon Gold 6148", DeviceKind::kCpu, 3.07, 0, 128, 0,
       "Intel ARK: 20 cores, 2.4 GHz, AVX-512, six channels DDR4-2666"},
      {"Xeon Platinum 8259CL", DeviceKind::kCpu, 3.84, 0, 140.8, 0,
       "made for AWS, not in Intel ARK: 24 cores, 2.5 GHz (/proc/cpuinfo of g4dn instances), "
       "AVX-512, six channels DDR4-2933"},
      {"EPYC 7742", DeviceKind::kCpu, 4.61, 0, 204.8, 0,
       "AMD specification: 64 cores, 2.25 GHz, AVX2, eight channels DDR4-3200"},
      {"EPYC 9654", DeviceKind::kCpu, 7.37, 0, 460.8, 0,
       "AMD specification: 96 cores, 2.4 GHz, AVX-512 in two halves, twelve channels DDR5-4800"},
  };
  return table;
}

// A driver says the memory's size, too, and PCIe also where the table has one row for all.
const DeviceRow* known_device(const std::string& kind) {
  const std::string asked = plain(kind);
  std::string without_bus = asked;
  const std::size_t bus = asked.find("pcie");
  if (bus != std::string::npos) without_bus.erase(bus, std::string("pcie").size());
  for (const std::string& name : {asked, without_bus}) {
    for (const DeviceRow& row : device_table()) {
      const std::string known = plain(row.kind);
      if (name == known || name == fmt::format("{}{:g}gb", known, row.memory_gib)) return &row;
    }
  }
  return nullptr;
}

namespace {

std::string unknown_kind(const std::string& kind, const std::string& where) {
  std::vector<std::string> known;
  for (const DeviceRow& row : device_table()) known.push_back(row.kind);
  return fmt::format("{}: unknown device kind '{}', one of {} expected{}", where, kind,
                     fmt::join(known, ", "), nearest_hint(kind, known));
}

}  // namespace

const DeviceRow& find_device(const std::string& kind, const std::string& where) {
  const DeviceRow* row = known_device(kind);
  if (row == nullptr) fail(ErrorCode::kUsage, "{}", unknown_kind(kind, where));
  return *row;
}

bool is_assumed(const cluster::Device& device) {
  return device.kind == DeviceKind::kGpu && device.figures.kind.empty() &&
         !has_rates(device.figures);
}

cluster::DeviceFigures figures_of(const cluster::Device& device, const std::string& where) {
  cluster::DeviceFigures figures = device.figures;
  if (is_assumed(device)) figures.kind = kAssumedGpu;
  if (figures.kind.empty()) return figures;
  const DeviceRow* row = known_device(figures.kind);
  if (row == nullptr) {
    if (has_rates(figures)) return figures;
    fail(ErrorCode::kUsage,
         "{} Of another kind give the rates in the cluster file: `devices: {{kind: {}, tflops: "
         "19.5, memory_gib: 40, memory_bandwidth_gb_per_s: 1555}}`.",
         unknown_kind(figures.kind, where), figures.kind);
  }
  if (figures.tflops == 0) figures.tflops = row->tflops;
  if (figures.memory_bandwidth_bytes_per_s == 0) {
    figures.memory_bandwidth_bytes_per_s = row->memory_gb_per_s * 1e9;
  }
  if (figures.memory == Bytes{0}) {
    figures.memory = Bytes(static_cast<std::int64_t>(row->memory_gib * (1 << 30)));
  }
  return figures;
}

// Of 15.75, 31.5 and 63 GB/s that 16 lanes carry by 3.0, 4.0 and 5.0.
double pcie_bytes_per_s(const cluster::DeviceFigures& figures) {
  if (figures.pcie_bytes_per_s > 0) return figures.pcie_bytes_per_s;
  const DeviceRow* known = known_device(figures.kind);
  if (known != nullptr && known->pcie == 5) return 50e9;  // docs/benchmarks/gpu.md measured 52.5
  if (known != nullptr && known->pcie == 4) return 24e9;
  return 12e9;
}

// Ampere and newer compute in bf16.
Bytes context_bytes(const DeviceRow& row) {
  return Bytes(row.has_bf16 ? 500'000'000 : 300'000'000);
}

DeviceRow row_of(const cluster::DeviceFigures& figures) {
  const DeviceRow* known = known_device(figures.kind);
  DeviceRow row = known != nullptr ? *known : DeviceRow{};
  if (known == nullptr) {
    row.kind = figures.kind.empty() ? "a device of the cluster file's rates" : figures.kind;
    row.has_bf16 = true;
  }
  // Rates of whoever knows the card are those that it keeps.
  if (figures.tflops != row.tflops || figures.tf32_tflops > 0 || figures.half_tflops > 0) {
    row.sustained = 1;
    row.is_fitted = false;
  }
  row.tflops = figures.tflops;
  row.memory_gb_per_s = figures.memory_bandwidth_bytes_per_s / 1e9;
  if (figures.tf32_tflops > 0) row.tf32_tflops = figures.tf32_tflops;
  if (figures.half_tflops > 0) row.half_tflops = figures.half_tflops;
  return row;
}

}  // namespace autodist::sim
